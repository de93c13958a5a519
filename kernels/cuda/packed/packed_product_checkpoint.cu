/* The forms of quantised checkpoints. */
#include "kernels/cuda/packed/packed_product.cuh"

cudaError_t launch_packed_checkpoint(cudaStream_t stream, int form,
                                     const struct packed_product_launch *args) {
    multiply_forms<packed_form_index(DTYPE_I4_32), 6>(stream, form, *args);
    return cudaGetLastError();
}
