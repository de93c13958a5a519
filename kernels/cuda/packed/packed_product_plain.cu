/* Weights in rows of the activations' type. */
#include "kernels/cuda/packed/packed_product.cuh"

cudaError_t launch_plain_product(cudaStream_t stream, const struct packed_product_launch *args) {
    multiply_form<PLAIN>(stream, *args);
    return cudaGetLastError();
}

cudaError_t packed_code(int *out) {
    cudaFuncAttributes attributes = {};
    const cudaError_t status =
        cudaFuncGetAttributes(&attributes, packed_narrow_kernel<PLAIN, __half, false>);
    *out = attributes.ptxVersion;
    return status;
}
