/* The forms of GGUF whose blocks have 256 columns. */
#include "kernels/cuda/packed/packed_product.cuh"

cudaError_t launch_packed_256(cudaStream_t stream, int form,
                              const struct packed_product_launch *args) {
    multiply_forms<packed_form_index(DTYPE_Q2_K), 6>(stream, form, *args);
    return cudaGetLastError();
}
