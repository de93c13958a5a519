/* Between the coarse table and the cuts: which tokens are surely kept by top_k and top_p, which are
 * surely dropped, and the few in the boundary bins that the exact cut decides. The blocks of a row
 * sum the first and list the last, so that the cuts need no pass over the row.
 */
#ifndef QUIRE_KERNELS_CUDA_SAMPLE_SAMPLE_UNDECIDED_CUH
#define QUIRE_KERNELS_CUDA_SAMPLE_SAMPLE_UNDECIDED_CUH

#include "kernels/cuda/sample/sample_ranges.cuh"

/* Where to look for tokens of the boundary bins. */
struct undecided_source {
    struct logit_row row;
    bool is_listed; /* all of them are in `tokens`; otherwise they are in the row */
    const struct sample_logit *tokens;
    int32_t num_tokens;
};

template <class Visit>
__device__ __forceinline__ void visit_row(const struct undecided_source &source, Visit visit) {
    if (!source.is_listed)
        visit_row(source.row, visit);
    for (int32_t i = threadIdx.x; i < source.num_tokens; i += SAMPLE_THREADS)
        visit(source.tokens[i].token, source.tokens[i].logit);
}

/* Returns the smallest integer that is at least fraction * mass and at least 1. */
__device__ __forceinline__ uint64_t mass_share(float fraction, uint64_t mass) {
    uint64_t scaled = static_cast<uint64_t>(fraction * 0x1p64f); /* < 2^64, as fraction < 1 */
    uint64_t share = __umul64hi(scaled, mass) + (scaled * mass != 0);
    return share > 0 ? share : 1;
}

__device__ __forceinline__ struct tally top_k_limit(const struct sample_row *r, int32_t size) {
    bool use_top_k = sample_has_top_k(r, size);
    return {use_top_k ? static_cast<uint32_t>(r->settings.top_k) : NO_COUNT, NO_MASS};
}

/* Of a row without cuts. */
__device__ __forceinline__ struct sample_undecided none_undecided() {
    return {true, 0, {{1, 0}, {1, 0}}};
}

/* From the coarse table of a row with cuts. Before top_k's cut is known, top_p's cut lies between
 * those for the least and the most that top_k can keep. */
__device__ __forceinline__ struct sample_undecided find_undecided(const struct sample_row *r,
                                                                  int32_t size,
                                                                  const struct weighing &w,
                                                                  struct cut_memory *memory) {
    struct sample_undecided out = none_undecided();
    struct boundary at = find_coarse_boundary(w, top_k_limit(r, size), memory);
    uint64_t least = at.total.mass, most = least;
    uint32_t count = 0;
    if (at.is_reached) {
        out.keys[0] = {at.low_key, at.high_key};
        out.kept_above = at.high_key;
        count = at.inside.count;
        least = at.before.mass;
        most = least + at.inside.mass;
    }
    if (r->settings.top_p < 1) {
        uint64_t limit = mass_share(r->settings.top_p, least);
        at = find_coarse_boundary(w, {NO_COUNT, limit}, memory);
        out.keys[1] = {at.low_key, at.high_key};
        out.kept_above = at.high_key;
        uint32_t before = at.before.count;
        limit = mass_share(r->settings.top_p, most);
        at = find_coarse_boundary(w, {NO_COUNT, limit}, memory);
        out.keys[1].low = at.low_key;
        count += at.before.count + at.inside.count - before;
    }
    out.is_listed = count <= SAMPLE_MAX_UNDECIDED;
    return out;
}

__device__ __forceinline__ bool is_among(const struct sample_keys &keys, uint32_t key) {
    return key >= keys.low && key <= keys.high;
}

/* A logit's weight is at least min_p when the logit is at least max + T log(min_p): the first float
 * that is. By one thread, as few GPUs are fast in double. */
__device__ __forceinline__ float min_p_bound(const struct sample_row *r, float max,
                                             float temperature) {
    double bound = max + temperature * log(static_cast<double>(r->settings.min_p));
    float rounded = static_cast<float>(bound);
    return rounded < bound ? nextafterf(rounded, INFINITY) : rounded;
}

__device__ __forceinline__ void write_token(const struct sample_tensors &t, int32_t token) {
    t.out[blockIdx.y].token = t.sampled_tokens[blockIdx.y] = token;
}

/* Steps 5 and 6. */
__device__ __forceinline__ struct cut choose_cut(const struct sample_row *r,
                                                 const struct undecided_source &source,
                                                 const struct weighing &w,
                                                 struct cut_memory *memory) {
    int32_t size = source.row.size;
    bool use_top_p = r->settings.top_p < 1;
    struct cut cut = {w.lowest, 0, 0, NO_MASS};
    if (!sample_has_cut(r, size))
        return cut;
    struct tally limit = top_k_limit(r, size);
#pragma unroll 1
    for (int i = 0; i < (use_top_p ? 2 : 1); i++) {
        find_cut(source, w, use_top_p, limit, memory, &cut);
        limit = {NO_COUNT, mass_share(r->settings.top_p, cut.mass)};
    }
    return cut;
}

/* Sums the surely kept tokens of each of the block's chunks, and lists the undecided ones. */
__device__ __forceinline__ void sum_decided(const struct row_share &share,
                                            const struct sample_undecided &undecided,
                                            const struct weighing &w) {
    struct sample_scratch *scratch = share.scratch;
    int32_t number = blockIdx.x * SAMPLE_WARPS + threadIdx.x / WARP_SIZE;
    int32_t lane = threadIdx.x % WARP_SIZE;
    struct logit_row chunk = chunk_of(share, number);
    uint64_t sum = 0;
    visit_quads<WARP_SIZE>(chunk, chunk.begin, chunk.end, lane, [&](int32_t i, float x) {
        uint32_t key = key_of(x);
        if (key > undecided.kept_above)
            sum += weight_of(w, x);
        else if (is_among(undecided.keys[0], key) || is_among(undecided.keys[1], key))
            scratch->undecided_tokens[atomicAdd(&scratch->num_undecided, 1)] = {x, i};
    });
    sum = warp_reduce(sum, [](uint64_t a, uint64_t b) { return a + b; });
    if (lane == 0)
        scratch->chunk_sums[number] = sum;
}

#endif
