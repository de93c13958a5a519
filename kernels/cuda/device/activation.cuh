/* What a gated feed-forward network does to its gate and up: enum activation of kernels/backend.h.
 */
#ifndef QUIRE_KERNELS_CUDA_DEVICE_ACTIVATION_CUH
#define QUIRE_KERNELS_CUDA_DEVICE_ACTIVATION_CUH

#include "kernels/backend.h"
#include "kernels/cuda/device/device.cuh"

#define LOG2_E 1.4426950408889634f
#define TWO_SQRT_2_OVER_PI 1.5957691216057308f

/* A NaN stays one. */
__device__ __forceinline__ float clamp(float x, float low, float high) {
    return x < low ? low : x > high ? high : x;
}

/* x/2 (1 + tanh u) = x sigmoid(2u). */
template <activation A> __device__ __forceinline__ float activate_and_multiply(float x, float up) {
    float u = A == ACTIVATION_GELU_TANH ? TWO_SQRT_2_OVER_PI * (x + 0.044715f * x * x * x) : x;
    if (A == ACTIVATION_CLAMPED_SWIGLU) {
        x = clamp(x, -INFINITY, CLAMPED_SWIGLU_LIMIT);
        u = CLAMPED_SWIGLU_ALPHA * x;
        up = clamp(up, -CLAMPED_SWIGLU_LIMIT, CLAMPED_SWIGLU_LIMIT) + 1;
    }
    return x / (1.0f + exp2_fast(-LOG2_E * u)) * up;
}

#endif
