/* Weights in rows of the activations' type. */
#include "kernels/cuda/packed/packed_product.cuh"

cudaError_t launch_plain_product(cudaStream_t stream, const struct packed_product_launch *args) {
    multiply_form<PLAIN>(stream, *args);
    return cudaGetLastError();
}
