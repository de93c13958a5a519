/* Steps 4 to 7 of sampling.h, one block a row: find the most probable token, cut, sample.
 *
 * Passes over the row: one for temperature 0; one more to sample; with top_k or top_p one more
 * for the coarse table, one for each of the two whose boundary bin holds more than one token (more
 * when many tokens lie close together), one when a cut falls between equal logits. */
#include "kernels/cuda/sample_cut.cuh"

struct choose_memory {
    uint64_t of_warps[2][SAMPLE_WARPS];
    struct cut_memory cut;
    float lowest;
};

/* A logit's weight is at least min_p when the logit is at least max + T log(min_p): the first float
 * that is. By one thread, as few GPUs are fast in double. */
__device__ __forceinline__ float min_p_bound(const struct sample_row *r, float max,
                                             struct choose_memory *memory) {
    if (threadIdx.x == 0) {
        double bound = max + r->settings.temperature * log(static_cast<double>(r->settings.min_p));
        float rounded = static_cast<float>(bound);
        memory->lowest = rounded < bound ? nextafterf(rounded, INFINITY) : rounded;
    }
    __syncthreads();
    return memory->lowest;
}

/* The least integer that is at least fraction * mass, at least 1. */
__device__ __forceinline__ uint64_t mass_share(float fraction, uint64_t mass) {
    uint64_t scaled = static_cast<uint64_t>(fraction * 0x1p64f); /* < 2^64, as fraction < 1 */
    uint64_t share = __umul64hi(scaled, mass) + (scaled * mass != 0);
    return share > 0 ? share : 1;
}

/* Steps 5 and 6. */
__device__ __forceinline__ struct cut choose_cut(const struct sample_row *r,
                                                 const struct logit_row &row,
                                                 const struct weighing &w,
                                                 struct cut_memory *memory) {
    const struct sampling_settings *by = &r->settings;
    bool use_top_k = by->top_k > 0 && by->top_k < row.size, use_top_p = by->top_p < 1;
    struct cut cut = {w.lowest, 0, 0, NO_MASS};
    if (!use_top_k && !use_top_p)
        return cut;
    fill_coarse_table(row, w, use_top_p, memory);
    struct tally limit = {use_top_k ? static_cast<uint32_t>(by->top_k) : NO_COUNT, NO_MASS};
#pragma unroll 1
    for (int i = 0; i < (use_top_p ? 2 : 1); i++) {
        find_cut(row, w, use_top_p, limit, memory, &cut);
        limit = {NO_COUNT, mass_share(by->top_p, cut.mass)};
    }
    return cut;
}

/* Steps 5 to 7, for a row with a token to choose at a temperature above 0. */
__device__ __forceinline__ int32_t sample_kept(const struct sample_row *r,
                                               const struct logit_row &row, float max,
                                               struct choose_memory *memory) {
    float bound = r->settings.min_p > 0 ? min_p_bound(r, max, memory) : -INFINITY;
    struct weighing w = weighing_of(max, r->settings.temperature, bound);
    struct cut cut = choose_cut(r, row, w, &memory->cut);
    int32_t last_equal = last_kept_equal(row, cut, memory->of_warps);
    return first_to_exceed(
        row, memory->of_warps,
        [&](int32_t i, float x) { return is_kept(cut, last_equal, i, x) ? weight_of(w, x) : 0; },
        [&](uint64_t total) {
            return __umul64hi(total, sample_random_bits(r->seed, r->position) << 11);
        });
}

__global__ void __launch_bounds__(SAMPLE_THREADS) choose_kernel(struct sample_tensors t) {
    __shared__ struct choose_memory memory;
    const struct sample_row *r = &t.rows[blockIdx.x];
    int32_t token = r->target;
    if (token == SAMPLE_NO_TARGET) {
        const float *logits = sample_is_copied(r) ? t.edited : t.logits;
        struct logit_row row =
            logit_row_at(logits + static_cast<size_t>(blockIdx.x) * t.row_stride, t.vocab_size);
        struct best_logit best = find_best(row, memory.of_warps[0]);
        bool is_sampled = r->settings.temperature > 0 && best.logit > -INFINITY;
        token = is_sampled ? sample_kept(r, row, best.logit, &memory) : best.token;
    }
    if (threadIdx.x == 0)
        t.out[blockIdx.x].token = t.sampled_tokens[blockIdx.x] = token;
}

extern "C" cudaError_t launch_sample_choose(cudaStream_t stream,
                                            const struct sample_tensors *tensors) {
    LAUNCH(choose_kernel, tensors->num_rows, SAMPLE_THREADS, 0, stream, *tensors);
    return cudaGetLastError();
}
