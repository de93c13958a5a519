/* Weights and activations of E4M3: the product for sm_89 and later. */
#include "kernels/cuda/packed/packed_product.cuh"

cudaError_t launch_packed_fp8(cudaStream_t stream, const struct packed_product_launch *args) {
    multiply_form<FP8>(stream, *args);
    return cudaGetLastError();
}
