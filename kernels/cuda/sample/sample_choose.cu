/* Steps 4 to 6 and 10 of sampling.h, one block a row or several: find the most probable token, cut,
 * draw. Rows that llama.cpp's steps have a part in are sample_shape.cu's.
 *
 * Three stages, the later ones for rows that are drawn. The first finds the largest logit; the
 * second, with top_k or top_p, fills the coarse table; the third sums the weights of the tokens
 * that are surely kept, chunk by chunk. The last block of a row finishes each stage: it takes the
 * token of a greedy row, says which tokens are undecided, and draws. A block that has a row to
 * itself goes through all stages in one launch; else each is a launch.
 *
 * Each stage is one pass over the row, and drawing one over a chunk. One block alone makes a pass
 * or more to divide the boundary bin when it has very many tokens, and one over the row when a
 * cut falls between equal logits. */
#include "kernels/cuda/sample/sample_undecided.cuh"

enum { STAGE_BEST = 1, STAGE_TABLE = 2, STAGE_DRAW = 4 };

struct choose_memory {
    uint64_t of_warps[2][SAMPLE_WARPS];
    struct cut_memory cut;
    struct share_memory share;
    struct chunk_target target;
    unsigned long long sums[SAMPLE_THREADS]; /* of chunks */
};
static_assert(SAMPLE_MAX_CHUNKS <= SAMPLE_THREADS, "a thread has one chunk");

/* Called by one thread. */
__device__ __forceinline__ void finish_best(const struct sample_tensors &t,
                                            const struct sample_row *r, struct sample_logit best,
                                            struct sample_scratch *scratch) {
    scratch->is_sampled = r->settings.temperature > 0 && best.logit > -INFINITY;
    if (!scratch->is_sampled) {
        write_token(t, best.token);
        return;
    }
    scratch->max = best.logit;
    scratch->bound =
        r->settings.min_p > 0 ? min_p_bound(r, best.logit, r->settings.temperature) : -INFINITY;
    scratch->undecided = none_undecided();
}

/* Steps 5, 6 and 10, by the last block of the row. */
__device__ __forceinline__ int32_t draw(const struct row_share &share, const struct sample_row *r,
                                        const struct weighing &w, struct choose_memory *memory) {
    struct sample_scratch *scratch = share.scratch;
    const struct undecided_source source = {share.row, scratch->undecided.is_listed,
                                            scratch->undecided_tokens, scratch->num_undecided};
    if (sample_is_cut(r, share.row.size)) {
        load_table(share, &memory->cut.coarse);
        clear_table(share);
    }
    struct cut cut = choose_cut(r, source, w, &memory->cut);
    int32_t last_equal = last_kept_equal(share.row, cut, memory->of_warps);
    auto weigh = [&](int32_t i, float x) {
        return is_kept(cut, last_equal, i, x) ? weight_of(w, x) : 0;
    };
    auto target_of = [&](uint64_t total) {
        return __umul64hi(total, sample_random_bits(r->seed, r->position) << 11);
    };
    struct logit_row place = share.row;
    struct chunk_target in_place = {};
    if (source.is_listed) {
        int32_t num_chunks = gridDim.x * SAMPLE_WARPS, own = threadIdx.x;
        memory->sums[own] = own < num_chunks ? scratch->chunk_sums[own] : 0;
        __syncthreads();
        visit_row(source, [&](int32_t i, float x) {
            atomicAdd(&memory->sums[chunk_with(share, i)],
                      static_cast<unsigned long long>(weigh(i, x)));
        });
        __syncthreads();
        in_place = find_chunk(memory->sums[own], memory->of_warps[0], &memory->target, target_of);
        place = chunk_of(share, in_place.chunk);
    }
    return first_to_exceed(place, memory->of_warps, weigh, [&](uint64_t total) {
        return source.is_listed ? in_place.rest : target_of(total);
    });
}

__global__ void __launch_bounds__(SAMPLE_THREADS)
    choose_kernel(struct sample_tensors t, unsigned stages) {
    __shared__ struct choose_memory memory;
    const struct sample_row *r = &t.rows[blockIdx.y];
    struct sample_scratch *scratch = &t.scratch[blockIdx.y];
    bool is_first_thread = threadIdx.x == 0;
    if (sample_is_shaped(r))
        return;
    if (r->target != SAMPLE_NO_TARGET) {
        if (is_first_thread && blockIdx.x == 0 && (stages & STAGE_BEST))
            write_token(t, r->target);
        return;
    }
    const float *logits = sample_is_copied(r) ? t.edited : t.logits;
    const struct row_share share = share_of(
        logit_row_at(logits + static_cast<size_t>(blockIdx.y) * t.row_stride, t.vocab_size),
        scratch);
    if (stages & STAGE_BEST) {
        uint64_t best = find_best(share.range, memory.of_warps[0]);
        if (!merge_best(share, &best, &memory.share))
            return;
        if (is_first_thread)
            finish_best(t, r, unpack_logit(best), scratch);
        __syncthreads();
    }
    if (stages == STAGE_BEST || !scratch->is_sampled)
        return;
    const struct weighing w = weighing_of(scratch->max, r->settings.temperature, scratch->bound);
    if ((stages & STAGE_TABLE) && sample_is_cut(r, t.vocab_size)) {
        fill_coarse_table(share.range, w, r->settings.top_p < 1, &memory.cut);
        if (!merge_table(share, &memory.cut.coarse, &memory.share))
            return;
        struct sample_undecided undecided = find_undecided(r, t.vocab_size, w, &memory.cut);
        if (is_first_thread)
            scratch->undecided = undecided;
        __syncthreads();
    }
    if (!(stages & STAGE_DRAW))
        return;
    const struct sample_undecided undecided = scratch->undecided;
    if (undecided.is_listed)
        sum_decided(share, undecided, w);
    if (!is_last_block(share, &memory.share))
        return;
    int32_t token = draw(share, r, w, &memory);
    if (is_first_thread) {
        write_token(t, token);
        scratch->num_undecided = 0;
    }
}

extern "C" cudaError_t launch_sample_choose(cudaStream_t stream,
                                            const struct sample_tensors *tensors,
                                            const struct sample_choice *choice) {
    unsigned table = choice->any_cut ? STAGE_TABLE : 0, draw = choice->any_drawn ? STAGE_DRAW : 0;
    unsigned launches[] = {STAGE_BEST, table, draw};
    if (choice->num_ranges == 1)
        launches[0] |= table | draw, launches[1] = launches[2] = 0;
    for (unsigned stages : launches)
        if (stages != 0)
            LAUNCH(choose_kernel, dim3(choice->num_ranges, tensors->num_rows), SAMPLE_THREADS, 0,
                   stream, *tensors, stages);
    return cudaGetLastError();
}
