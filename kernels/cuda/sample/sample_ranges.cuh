/* How the blocks of one row share it: each has a range, and the block that finishes last continues
 * alone. No block waits for another, so they may run in any order, even one by one.
 *
 * Sums of parts are of integers, hence exact: the result does not depend on the number of ranges. A
 * launch is of gridDim.x ranges by gridDim.y rows; with one range no synchronisation is needed, and
 * the block's shared memory already holds the whole row's results. */
#ifndef QUIRE_KERNELS_CUDA_SAMPLE_SAMPLE_RANGES_CUH
#define QUIRE_KERNELS_CUDA_SAMPLE_SAMPLE_RANGES_CUH

#include "kernels/cuda/sample/sample_cut.cuh"

struct row_share {
    struct logit_row row;   /* all of it */
    struct logit_row range; /* this block's */
    int32_t chunk_quads;
    struct sample_scratch *scratch;
};

struct share_memory {
    uint64_t best;
    bool is_last;
};

/* A chunk, and what is left of a target there once all chunks before it are summed. */
struct chunk_target {
    int32_t chunk;
    uint64_t rest;
};

__device__ __forceinline__ struct row_share share_of(const struct logit_row &row,
                                                     struct sample_scratch *scratch) {
    int32_t num_chunks = gridDim.x * SAMPLE_WARPS;
    int32_t chunk_quads = (row.end + num_chunks - 1) / num_chunks;
    int32_t range_quads = SAMPLE_WARPS * chunk_quads;
    return {row, part_of(row, blockIdx.x * range_quads, range_quads), chunk_quads, scratch};
}

__device__ __forceinline__ struct logit_row chunk_of(const struct row_share &share, int32_t chunk) {
    return part_of(share.row, chunk * share.chunk_quads, share.chunk_quads);
}

__device__ __forceinline__ int32_t chunk_with(const struct row_share &share, int32_t token) {
    return (token + share.row.lead) / 4 / share.chunk_quads;
}

/* Returns whether all other blocks of the row have reached this point; what they wrote before is
 * then visible. What this block wrote is visible to all its threads. */
__device__ __forceinline__ bool is_last_block(const struct row_share &share,
                                              struct share_memory *memory) {
    __syncthreads();
    if (gridDim.x == 1)
        return true;
    if (threadIdx.x == 0) {
        __threadfence(); /* the block's results are visible before the count is */
        memory->is_last = atomicAdd(&share.scratch->num_done, 1) + 1 == (int)gridDim.x;
        if (memory->is_last)
            share.scratch->num_done = 0;
        __threadfence(); /* and the others' to this block, if it is the last */
    }
    __syncthreads();
    return memory->is_last;
}

/* Returns whether this block continues; the best of its range is then that of the row. */
__device__ __forceinline__ bool merge_best(const struct row_share &share, uint64_t *best,
                                           struct share_memory *memory) {
    if (gridDim.x > 1 && threadIdx.x == 0)
        atomicMax(&share.scratch->best, static_cast<unsigned long long>(*best));
    if (!is_last_block(share, memory))
        return false;
    if (gridDim.x == 1)
        return true;
    if (threadIdx.x == 0)
        memory->best = atomicExch(&share.scratch->best, 0ull);
    __syncthreads();
    *best = memory->best;
    return true;
}

/* Replaces the range's table by the whole row's. */
__device__ __forceinline__ void load_table(const struct row_share &share, struct bin_table *table) {
    for (int i = threadIdx.x; i < SAMPLE_BINS && gridDim.x > 1; i += SAMPLE_THREADS) {
        uint64_t mass = share.scratch->bin_masses[i];
        table->count[i] = share.scratch->bin_counts[i];
        table->mass_low[i] = static_cast<uint32_t>(mass);
        table->mass_high[i] = static_cast<uint32_t>(mass >> 32);
    }
}

__device__ __forceinline__ void clear_table(const struct row_share &share) {
    for (int i = threadIdx.x; i < SAMPLE_BINS && gridDim.x > 1; i += SAMPLE_THREADS)
        share.scratch->bin_masses[i] = share.scratch->bin_counts[i] = 0;
}

/* Returns whether this block continues; its range's table is then that of the row. */
__device__ __forceinline__ bool merge_table(const struct row_share &share, struct bin_table *table,
                                            struct share_memory *memory) {
    __syncthreads();
    for (int i = threadIdx.x; i < SAMPLE_BINS && gridDim.x > 1; i += SAMPLE_THREADS) {
        uint64_t mass = static_cast<uint64_t>(table->mass_high[i]) << 32 | table->mass_low[i];
        if (table->count[i] != 0)
            atomicAdd(&share.scratch->bin_counts[i], table->count[i]);
        if (mass != 0)
            atomicAdd(&share.scratch->bin_masses[i], static_cast<unsigned long long>(mass));
    }
    if (!is_last_block(share, memory))
        return false;
    load_table(share, table);
    return true;
}

/* The first chunk at which the sums, in their order, exceed target_of(total), which is less than
 * the total; `sum` is that of the chunk numbered as the thread. */
template <class TargetOf>
__device__ __forceinline__ struct chunk_target
find_chunk(uint64_t sum, uint64_t (&of_warps)[SAMPLE_WARPS], struct chunk_target *shared,
           TargetOf target_of) {
    uint64_t upto = warp_scan({0, sum}).mass, total = 0;
    int32_t warp = threadIdx.x / WARP_SIZE;
    if (threadIdx.x % WARP_SIZE == WARP_SIZE - 1)
        of_warps[warp] = upto;
    __syncthreads();
    for (int32_t w = 0; w < SAMPLE_WARPS; w++) {
        upto += w < warp ? of_warps[w] : 0;
        total += of_warps[w];
    }
    uint64_t target = target_of(total);
    if (upto > target && upto - sum <= target)
        *shared = {static_cast<int32_t>(threadIdx.x), target - (upto - sum)};
    __syncthreads();
    return *shared;
}

#endif
