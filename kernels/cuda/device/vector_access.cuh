/* N consecutive elements in accesses of up to 16 bytes: 8 of 16 bits, or 4 floats, in one, which
 * needs an address that is a multiple of 16. Kernels take N as a parameter; the launcher chooses 8
 * if every row starts at such an address, otherwise the smallest N that works. */
#ifndef QUIRE_KERNELS_CUDA_DEVICE_VECTOR_ACCESS_CUH
#define QUIRE_KERNELS_CUDA_DEVICE_VECTOR_ACCESS_CUH

#include "kernels/cuda/device/device.cuh"

template <class T, int N> struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) vector_of {
    T element[N];
};

template <int N, class T> __device__ __forceinline__ void load_floats(float (&out)[N], const T *p) {
    vector_of<T, N> v = load_global(reinterpret_cast<const vector_of<T, N> *>(p));
#pragma unroll
    for (int i = 0; i < N; i++)
        out[i] = to_float(v.element[i]);
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
