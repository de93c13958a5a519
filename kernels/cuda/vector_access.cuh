/* N consecutive 16-bit elements as one access: with N = 8 a 16-byte load or store, which needs
 * addresses that are multiples of 16. Kernels take N as a parameter; the launcher chooses 8 where
 * every row starts at such an address, else the smallest N that does the work. */
#ifndef QUIRE_KERNELS_CUDA_VECTOR_ACCESS_CUH
#define QUIRE_KERNELS_CUDA_VECTOR_ACCESS_CUH

#include "kernels/cuda/device.cuh"

template <class T, int N> struct alignas(N * sizeof(T)) vector_of { T element[N]; };

template <int N, class T> __device__ __forceinline__ void load_floats(float (&out)[N], const T *p) {
    vector_of<T, N> v = *reinterpret_cast<const vector_of<T, N> *>(p);
#pragma unroll
    for (int i = 0; i < N; i++)
        out[i] = to_float(v.element[i]);
}

/* Likewise of floats, 16 bytes at a time. */
template <int N> __device__ __forceinline__ void load_weights(float (&out)[N], const float *p) {
    constexpr int part = N < 4 ? N : 4;
#pragma unroll
    for (int i = 0; i < N; i += part) {
        float values[part];
        load_floats(values, p + i);
#pragma unroll
        for (int k = 0; k < part; k++)
            out[i + k] = values[k];
    }
}

template <int N, class T>
__device__ __forceinline__ void store_floats(T *p, const float (&values)[N]) {
    vector_of<T, N> v;
#pragma unroll
    for (int i = 0; i < N; i++)
        v.element[i] = from_float<T>(values[i]);
    *reinterpret_cast<vector_of<T, N> *>(p) = v;
}

template <int N, class T> __device__ __forceinline__ void copy_elements(T *dst, const T *src) {
    *reinterpret_cast<vector_of<T, N> *>(dst) = *reinterpret_cast<const vector_of<T, N> *>(src);
}

static inline bool is_aligned_16(const void *p) {
    return reinterpret_cast<uintptr_t>(p) % 16 == 0;
}

#endif
