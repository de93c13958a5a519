/* The instructions that CUDA C++ has no function for. Source of operand layouts: PTX ISA, sections
 * "Matrix multiply-accumulate operation using mma instruction", "ldmatrix" and "cp.async".
 * kernels/cudasim defines the same functions for the host. */
#ifndef QUIRE_KERNELS_CUDA_DEVICE_DEVICE_PTX_CUH
#define QUIRE_KERNELS_CUDA_DEVICE_DEVICE_PTX_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#define DYNAMIC_SHARED(type, name)                                                                 \
    extern __shared__ __align__(16) unsigned char dynamic_shared_bytes[];                          \
    type *name = reinterpret_cast<type *>(dynamic_shared_bytes)

#define LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                     \
    kernel<<<grid, block, shared_bytes, stream>>>(__VA_ARGS__)

/* LAUNCH of a kernel that may begin before what the stream has before it is done, where it was
 * compiled for that (can_begin_early): see wait_for_earlier_work. */
#define LAUNCH_EARLY(is_early, kernel, grid, block, shared_bytes, stream, ...)                     \
    launch_early(is_early, kernel, grid, block, shared_bytes, stream, __VA_ARGS__)

template <class... P, class... A>
inline void launch_early(bool is_early, void (*kernel)(P...), dim3 grid, dim3 block,
                         size_t shared_bytes, cudaStream_t stream, const A &...arguments) {
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = is_early ? 1 : 0;
    cudaLaunchKernelEx(&config, kernel, arguments...);
}

/* Programmatic dependent launch (CUDA C++ Programming Guide; PTX ISA, "griddepcontrol"). A kernel
 * launched early may read only what no kernel of a step writes, and write nothing, before every one
 * of its threads has waited here: until all earlier grids have ended and what they wrote is
 * visible. Since such a kernel cannot end before its predecessor, and any other waits for all of
 * its predecessor, whoever waits for one kernel has waited for all before it. */
__device__ __forceinline__ void wait_for_earlier_work() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
/* The next kernel, if it is launched early, may begin once all blocks have come here or ended. */
__device__ __forceinline__ void let_next_begin() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

/* Returns x as a value that the compiler knows nothing about, so that values derived from it are
 * recomputed instead of kept in registers. */
__device__ __forceinline__ uint32_t opaque(uint32_t x) {
    asm volatile("" : "+r"(x));
    return x;
}

/* Reads of weights, and of other arrays, which the simulator counts. */
template <class V> __device__ __forceinline__ V load_weights(const V *p) {
    return *p;
}
template <class V> __device__ __forceinline__ V load_global(const V *p) {
    return *p;
}

/* acc += A B for one warp: A 16 x 16 row major, B 16 x 8 column major, both T; acc 16 x 8 float.
 * Lane l = 4 g + t holds rows g and g + 8: acc[0..1] at (g, 2t..2t+1), acc[2..3] at (g + 8, ..);
 * a[0] (g, 2t..), a[1] (g + 8, 2t..), a[2] (g, 2t + 8..), a[3] (g + 8, 2t + 8..);
 * b[0] (2t.., g), b[1] (2t + 8.., g). */
template <class T>
__device__ __forceinline__ void mma_m16n8k16(float (&acc)[4], const uint32_t (&a)[4],
                                             const uint32_t (&b)[2]);
template <>
__device__ __forceinline__ void mma_m16n8k16<__nv_bfloat16>(float (&acc)[4], const uint32_t (&a)[4],
                                                            const uint32_t (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
template <>
__device__ __forceinline__ void mma_m16n8k16<__half>(float (&acc)[4], const uint32_t (&a)[4],
                                                     const uint32_t (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* acc += A B likewise for A 16 x 32 and B 32 x 8 of E4M3, four to a register: a[0] (g, 4t..), a[1]
 * (g + 8, 4t..), a[2] (g, 4t + 16..), a[3] (g + 8, 4t + 16..); b[0] (4t.., g), b[1] (4t + 16.., g).
 * For kernels that are compiled for sm_89 and later only. (PTX ISA, "Matrix Fragments for
 * mma.m16n8k32".) */
__device__ __forceinline__ void mma_m16n8k32_e4m3(float (&acc)[4], const uint32_t (&a)[4],
                                                  const uint32_t (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* The differences of two pairs of T, each rounded once. */
template <class T> __device__ __forceinline__ uint32_t subtract2(uint32_t a, uint32_t b);
template <> __device__ __forceinline__ uint32_t subtract2<__half>(uint32_t a, uint32_t b) {
    uint32_t difference;
    asm("sub.f16x2 %0, %1, %2;" : "=r"(difference) : "r"(a), "r"(b));
    return difference;
}
template <> __device__ __forceinline__ uint32_t subtract2<__nv_bfloat16>(uint32_t a, uint32_t b) {
    uint32_t difference; /* sm_80 subtracts no bf16: a + b * -1 */
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(difference) : "r"(b), "r"(0xbf80bf80), "r"(a));
    return difference;
}

/* The products of two pairs of T, each rounded once. */
template <class T> __device__ __forceinline__ uint32_t multiply2(uint32_t a, uint32_t b);
template <> __device__ __forceinline__ uint32_t multiply2<__half>(uint32_t a, uint32_t b) {
    uint32_t product;
    asm("mul.f16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
    return product;
}
template <> __device__ __forceinline__ uint32_t multiply2<__nv_bfloat16>(uint32_t a, uint32_t b) {
    uint32_t product; /* sm_80 multiplies no bf16: a * b + -0 */
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(product) : "r"(a), "r"(b), "r"(0x80008000));
    return product;
}

/* Four 8 x 8 tiles of 16-bit elements: lane l gives the shared-memory address of row l % 8 of tile
 * l / 8 (16 bytes, aligned); out[i] holds of tile i the elements (l / 4, 2 (l % 4) ..), or with
 * _trans the elements (2 (l % 4) .., l / 4). */
__device__ __forceinline__ void ldmatrix_x4(uint32_t (&out)[4], const void *shared_row) {
    unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(shared_row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(address)
                 : "memory");
}
__device__ __forceinline__ void ldmatrix_x4_trans(uint32_t (&out)[4], const void *shared_row) {
    unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(shared_row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(address)
                 : "memory");
}

/* 16 bytes from global to shared memory, past the registers; zeros, and no read, when !valid. Both
 * addresses are 16-byte aligned. Complete after copy_async_wait and a barrier. */
__device__ __forceinline__ void copy_async_16(void *shared, const void *global, bool valid) {
    unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(shared));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(address), "l"(global), "r"(valid ? 16 : 0)
                 : "memory");
}
/* The same of 4 bytes. */
__device__ __forceinline__ void copy_async_4(void *shared, const void *global, bool valid) {
    unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(shared));
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                 :
                 : "r"(address), "l"(global), "r"(valid ? 4 : 0)
                 : "memory");
}
/* Closes a group of this thread's copies. */
__device__ __forceinline__ void copy_async_commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
/* Waits until at most N of this thread's groups are unfinished. */
template <int N> __device__ __forceinline__ void copy_async_wait() {
    asm volatile("cp.async.wait_group %0;" : : "n"(N) : "memory");
}

/* 2^x to 2 ulp; 0 for -infinity. */
__device__ __forceinline__ float exp2_fast(float x) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

#endif
