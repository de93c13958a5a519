/* The forms of GGUF whose blocks have 32 columns. */
#include "kernels/cuda/packed/packed_product.cuh"

cudaError_t launch_packed_32(cudaStream_t stream, int form,
                             const struct packed_product_launch *args) {
    multiply_forms<packed_form_index(DTYPE_Q4_0), 7>(stream, form, *args);
    return cudaGetLastError();
}
