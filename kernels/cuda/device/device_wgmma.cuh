/* wgmma: products of a warpgroup, four consecutive warps of which the first one's number is a
 * multiple of 4, on compute capability 9.0 alone, compiled for sm_90a. Source: PTX ISA, sections
 * "Asynchronous warpgroup level matrix multiply-accumulate instructions" and "membar / fence"
 * (fence.proxy.async). kernels/cudasim defines the same functions for the host. */
#ifndef QUIRE_KERNELS_CUDA_DEVICE_DEVICE_WGMMA_CUH
#define QUIRE_KERNELS_CUDA_DEVICE_DEVICE_WGMMA_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <type_traits>

/* DYNAMIC_SHARED at a multiple of `alignment`. */
#define DYNAMIC_SHARED_AT(alignment, type, name)                                                   \
    extern __shared__ __align__(alignment)                                                         \
    unsigned char aligned_shared_bytes[];                                                          \
    type *name = reinterpret_cast<type *>(aligned_shared_bytes)

/* Names a matrix of 16-bit elements in shared memory, in groups of 8 x 8 elements, 16 bytes by 8
 * rows. The rows of a group are swizzle_bytes apart, 128, 64 or 32, and a row of that many bytes
 * has its 16-byte columns exchanged: bits 4 on of an address by those from 7 on. So it lies at a
 * multiple of 8 swizzle_bytes, of which only the column may be added to.
 *   not transposed  a row has elements along the inner dimension; the next 8 rows are stride_bytes
 *                   on; leading_bytes means nothing
 *   transposed      a row has elements along M or N, of one inner index; the next 8 inner indices
 *                   are stride_bytes on, the next swizzle_bytes of M or N leading_bytes
 * To move it by a multiple of 16 bytes, add their 16th. */
__device__ __forceinline__ uint64_t matrix_descriptor(const void *shared, int swizzle_bytes,
                                                      int leading_bytes, int stride_bytes) {
    const uint64_t address = static_cast<unsigned>(__cvta_generic_to_shared(shared));
    const uint64_t mode = swizzle_bytes == 128 ? 1 : swizzle_bytes == 64 ? 2 : 3;
    return (address & 0x3ffff) >> 4 | (uint64_t)(leading_bytes >> 4) << 16 |
           (uint64_t)(stride_bytes >> 4) << 32 | mode << 62;
}

/* What this thread stored to shared memory before is there for wgmma after the next barrier. */
__device__ __forceinline__ void fence_async_proxy() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* The compiler moves no use of the sums across. */
template <int N8> __device__ __forceinline__ void keep_sums(float (&acc)[N8][4]) {
#pragma unroll
    for (int n = 0; n < N8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            asm volatile("" : "+f"(acc[n][i])::"memory");
}

/* Between what used the registers of sums, or of A, and the products that do. */
template <int N8> __device__ __forceinline__ void wgmma_fence(float (&acc)[N8][4]) {
    keep_sums(acc);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
/* Closes a group of the warpgroup's products. */
__device__ __forceinline__ void wgmma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/* Waits until at most N groups are unfinished, those of these sums not among them. */
template <int N, int N8> __device__ __forceinline__ void wgmma_wait(float (&acc)[N8][4]) {
    asm volatile("wgmma.wait_group.sync.aligned %0;" : : "n"(N) : "memory");
    keep_sums(acc);
}

#define WGMMA_SUMS_4(i) "+f"(acc[i][0]), "+f"(acc[i][1]), "+f"(acc[i][2]), "+f"(acc[i][3])
#define WGMMA_SUMS_16(i)                                                                           \
    WGMMA_SUMS_4(i), WGMMA_SUMS_4(i + 1), WGMMA_SUMS_4(i + 2), WGMMA_SUMS_4(i + 3)
#define WGMMA_SUMS_64 WGMMA_SUMS_16(0), WGMMA_SUMS_16(4)
#define WGMMA_SUMS_96 WGMMA_SUMS_64, WGMMA_SUMS_16(8)
#define WGMMA_SUMS_128 WGMMA_SUMS_96, WGMMA_SUMS_16(12)
#define WGMMA_NAMES_64                                                                             \
    "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"                                        \
    ","                                                                                            \
    "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define WGMMA_NAMES_96                                                                             \
    WGMMA_NAMES_64 ","                                                                             \
                   "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define WGMMA_NAMES_128                                                                            \
    WGMMA_NAMES_96 ","                                                                             \
                   "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
/* `names` are those of the operands after the sums. */
#define WGMMA(n, type, names, adds, ...)                                                           \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " adds ", 0;\n"                                 \
                 "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type                   \
                 " {" WGMMA_NAMES_##n "}, " names ";\n}"                                           \
                 : WGMMA_SUMS_##n                                                                  \
                 : __VA_ARGS__)
#define WGMMA_OF_REGISTERS(n, type, a, b, adds, transposed)                                        \
    WGMMA(n, type, a ", " b ", p, 1, 1, " transposed, adds, "r"(a_of[0]), "r"(a_of[1]),            \
          "r"(a_of[2]), "r"(a_of[3]), "l"(b_of), "r"((int)adds_of), "n"((int)TRANSPOSED_B))

/* acc = A B, or added to it: A 64 x 16, of which warp w has rows 16 w on in the registers of
 * mma_m16n8k16; B 16 x 8 N8 in shared memory; acc 64 x 8 N8, likewise, acc[n] being columns 8 n on.
 * It continues until wgmma_wait; until then nobody changes the registers or the memory. */
template <class T, bool TRANSPOSED_B, int N8>
__device__ __forceinline__ void wgmma_m64k16(float (&acc)[N8][4], const uint32_t (&a_of)[4],
                                             uint64_t b_of, bool adds_of) {
    static_assert(N8 == 8 || N8 == 12 || N8 == 16, "others are not in use");
    constexpr bool is_bf16 = std::is_same<T, __nv_bfloat16>::value;
    if constexpr (N8 == 8 && is_bf16)
        WGMMA_OF_REGISTERS(64, "bf16", "{%32,%33,%34,%35}", "%36", "%37", "%38");
    else if constexpr (N8 == 8)
        WGMMA_OF_REGISTERS(64, "f16", "{%32,%33,%34,%35}", "%36", "%37", "%38");
    if constexpr (N8 == 12 && is_bf16)
        WGMMA_OF_REGISTERS(96, "bf16", "{%48,%49,%50,%51}", "%52", "%53", "%54");
    else if constexpr (N8 == 12)
        WGMMA_OF_REGISTERS(96, "f16", "{%48,%49,%50,%51}", "%52", "%53", "%54");
    if constexpr (N8 == 16 && is_bf16)
        WGMMA_OF_REGISTERS(128, "bf16", "{%64,%65,%66,%67}", "%68", "%69", "%70");
    else if constexpr (N8 == 16)
        WGMMA_OF_REGISTERS(128, "f16", "{%64,%65,%66,%67}", "%68", "%69", "%70");
}

/* The same with A in shared memory, not transposed, 64 rows in all. */
template <class T, bool TRANSPOSED_B>
__device__ __forceinline__ void wgmma_m64k16(float (&acc)[8][4], uint64_t a_of, uint64_t b_of,
                                             bool adds_of) {
    if constexpr (std::is_same<T, __nv_bfloat16>::value)
        WGMMA(64, "bf16", "%32, %33, p, 1, 1, 0, %35", "%34", "l"(a_of), "l"(b_of),
              "r"((int)adds_of), "n"((int)TRANSPOSED_B));
    else
        WGMMA(64, "f16", "%32, %33, p, 1, 1, 0, %35", "%34", "l"(a_of), "l"(b_of),
              "r"((int)adds_of), "n"((int)TRANSPOSED_B));
}

#endif
