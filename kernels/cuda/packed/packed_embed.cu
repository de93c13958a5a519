/* Rows of packed weights as rows of T: those of an embedding, or all of a matrix that is widened.
 */
#include "kernels/cuda/packed/packed_codes.cuh"
#include "kernels/cuda/packed/packed_launch.h"

#include <utility>

namespace {

constexpr int chunk_threads = 16; /* one for each lane and group of columns */
constexpr int block_chunks = 8;

template <class T> __device__ __forceinline__ float element_of(uint32_t pair, int i);
template <> __device__ __forceinline__ float element_of<__nv_bfloat16>(uint32_t pair, int i) {
    return __uint_as_float(i == 0 ? pair << 16 : pair & 0xffff0000);
}
template <> __device__ __forceinline__ float element_of<__half>(uint32_t pair, int i) {
    return to_float(__ushort_as_half((unsigned short)(pair >> 16 * i)));
}

/* A thread unpacks the 8 codes that a lane has of a group. */
template <int F, class T> __global__ void packed_embed_kernel(const packed_embed_launch a) {
    const int chunk = (int)(blockIdx.y * block_chunks + threadIdx.x / chunk_threads);
    const int j = (int)threadIdx.x % chunk_threads / 4, t = (int)threadIdx.x % 4;
    const int32_t sampled = a.token_rows != nullptr ? a.token_rows[blockIdx.x] : -1;
    const int32_t token = sampled >= 0             ? a.sampled_tokens[sampled]
                          : a.token_ids != nullptr ? a.token_ids[blockIdx.x]
                                                   : (int32_t)blockIdx.x;
    const int32_t table_row = token - a.first_row, row = table_row - a.segment_row;
    const bool is_in_table = table_row >= 0 && table_row < a.table_rows;
    T *out = static_cast<T *>(a.out) + (int64_t)blockIdx.x * a.width + chunk * PACKED_CHUNK;
    if (chunk * PACKED_CHUNK + 32 * j >= a.width ||
        (is_in_table ? row < 0 || row >= a.num_rows : !a.clears))
        return;
    chunk_words<F> words;
    load_chunk(words, a.planes, is_in_table ? row : 0, a.width, chunk, t);
#pragma unroll
    for (int group = 0; group < 4; group++) {
        if (group != j)
            continue;
        uint32_t codes[4];
        float values[8];
        unpack_group<F, T>(codes, words, group);
#pragma unroll
        for (int e = 0; e < 8; e++) {
            values[e] =
                __fmul_rn(scale_at<F>(words, group, e / 4), element_of<T>(codes[e / 2], e % 2));
            if constexpr (form_of<F>::has_min)
                values[e] = __fadd_rn(values[e], min_at<F>(words, group, e / 4));
            if constexpr (form_of<F>::codes == PACKED_E2M1)
                values[e] = __fadd_rn(values[e], 0.0f); /* files have no negative zero */
            values[e] = is_in_table ? values[e] * a.scale : 0.0f;
        }
#pragma unroll
        for (int half = 0; half < 2; half++)
            *reinterpret_cast<uint2 *>(out + column_at<F>(group, t, half)) =
                make_uint2(pack2<T>(values[4 * half], values[4 * half + 1]),
                           pack2<T>(values[4 * half + 2], values[4 * half + 3]));
    }
}

template <int F> void embed_form(cudaStream_t stream, const packed_embed_launch &a) {
    const dim3 grid((unsigned)a.num_tokens,
                    (unsigned)((num_chunks_of(a.width) + block_chunks - 1) / block_chunks));
    if (a.bf16)
        LAUNCH((packed_embed_kernel<F, __nv_bfloat16>), grid, block_chunks * chunk_threads, 0,
               stream, a);
    else
        LAUNCH((packed_embed_kernel<F, __half>), grid, block_chunks * chunk_threads, 0, stream, a);
}

template <int... F>
void embed_one_of(cudaStream_t stream, int form, const packed_embed_launch &a,
                  std::integer_sequence<int, F...>) {
    ((form == F ? embed_form<F>(stream, a) : void()), ...);
}

} // namespace

cudaError_t launch_packed_embed(cudaStream_t stream, int form,
                                const struct packed_embed_launch *args) {
    embed_one_of(stream, form, *args, std::make_integer_sequence<int, PACKED_NUM_FORMS>());
    return cudaGetLastError();
}
