/* Step 1 of sampling.h, one block a row, once the tokens are known: log probability and rank of the
 * token, and the most probable tokens; then the listed tokens, one thread each. Always from the raw
 * logits.
 *
 * Passes over the row: largest logit; sum and rank; with a list, the coarse table, one or two to
 * find the list's end, and one to collect it. */
#include "kernels/backend.h"
#include "kernels/cuda/sample/sample_cut.cuh"
#include "kernels/cuda/sample/sample_parallel_launch.h"

struct report_memory {
    uint64_t of_warps[2][SAMPLE_WARPS];
    struct cut_memory cut;
    struct sample_logit list[SAMPLE_MAX_LOGPROBS]; /* as they came */
    int32_t num_listed;
};

__device__ __forceinline__ float logprob_of(float logit, double log_total) {
    return logit == -INFINITY ? -INFINITY : static_cast<float>(logit - log_total);
}

/* Thread i of the first n puts entry i of the list in its place, if that is among the first. */
__device__ __forceinline__ void write_top(const struct sample_logit *list, int32_t n,
                                          int32_t num_top, double log_total,
                                          struct sample_output *out) {
    struct sample_logit own = list[threadIdx.x];
    int32_t place = place_among(list, n, own);
    if (place >= num_top)
        return;
    out->top_tokens[place] = own.token;
    out->top_logprobs[place] = logprob_of(own.logit, log_total);
}

/* By weights that weighing_of(.., 1, ..) gives. */
__device__ __forceinline__ double log_total_of(const struct weighing &w, uint64_t mass) {
    return w.max + log(static_cast<double>(mass) / (1ull << SAMPLE_WEIGHT_BITS));
}

__global__ void __launch_bounds__(SAMPLE_THREADS) report_kernel(struct sample_tensors t) {
    __shared__ struct report_memory memory;
    int32_t num_logprobs = t.rows[blockIdx.x].num_logprobs;
    if (num_logprobs < 0)
        return;
    struct sample_output *out = &t.out[blockIdx.x];
    const float *logits = t.logits + static_cast<size_t>(blockIdx.x) * t.row_stride;
    struct logit_row row = logit_row_at(logits, t.vocab_size);
    struct weighing w =
        weighing_of(unpack_logit(find_best(row, memory.of_warps[0])).logit, 1, -INFINITY);
    float own = tame(logits[out->token]);
    uint64_t mass = 0, num_above = 0;
    visit_row(row, [&](int32_t, float x) {
        mass += weight_of(w, x);
        num_above += x > own;
    });
    mass = block_sum(mass, memory.of_warps[0]);
    num_above = block_sum(num_above, memory.of_warps[0]);
    int32_t num_top = min(num_logprobs, row.size);
    if (num_top > 0)
        collect_top(row, w, num_top, &memory.cut, memory.of_warps, memory.list, &memory.num_listed);
    if (threadIdx.x >= WARP_SIZE)
        return;
    double log_total = log_total_of(w, mass);
    if (static_cast<int32_t>(threadIdx.x) < num_top)
        write_top(memory.list, num_top, num_top, log_total, out);
    if (threadIdx.x == 0) {
        out->logprob = logprob_of(own, log_total);
        out->rank = 1 + static_cast<int32_t>(num_above);
        out->num_top = num_top;
        t.log_totals[blockIdx.x] = log_total;
    }
}

extern "C" cudaError_t launch_sample_report(cudaStream_t stream,
                                            const struct sample_tensors *tensors) {
    LAUNCH(report_kernel, tensors->num_rows, SAMPLE_THREADS, 0, stream, *tensors);
    return cudaGetLastError();
}

/* --- Of parts of rows: sums of the ranks' sums, and the first of the ranks' first tokens --- */

struct parts_memory {
    uint64_t of_warps[SAMPLE_WARPS];
    struct sample_logit list[BACKEND_MAX_RANKS * SAMPLE_MAX_LOGPROBS];
};
static_assert(BACKEND_MAX_RANKS * SAMPLE_MAX_LOGPROBS <= SAMPLE_THREADS, "a thread has one token");

/* A thread's token; one that is missing comes after all others. */
__device__ __forceinline__ struct sample_logit top_of(const struct sample_part *parts,
                                                      int32_t num_top) {
    struct sample_logit own = parts[threadIdx.x / num_top].top[threadIdx.x % num_top];
    return own.token < 0 ? sample_logit{-INFINITY, INT32_MAX} : own;
}

__global__ void __launch_bounds__(SAMPLE_THREADS)
    report_parts_kernel(struct sample_tensors t, struct sample_parts p) {
    __shared__ struct parts_memory memory;
    const struct row_excerpt excerpt = p.excerpts[blockIdx.x];
    if (!excerpt.is_reported)
        return;
    const struct sample_part *parts = p.parts + static_cast<size_t>(blockIdx.x) * p.num_ranks;
    struct sample_output *out = &t.out[blockIdx.x];
    const float *logits = t.logits + static_cast<size_t>(blockIdx.x) * t.row_stride;
    float own = tame(logits[out->token]);
    uint64_t best = 0, mass = 0, num_above = 0;
    for (int32_t rank = 0; rank < p.num_ranks; rank++) {
        uint64_t largest = p.largest[static_cast<size_t>(rank) * t.num_rows + blockIdx.x];
        best = largest > best ? largest : best;
        mass += parts[rank].mass;
        num_above += parts[rank].num_above;
    }
    if (excerpt.kind == EXCERPT_TOP) { /* what is likelier than the token is there */
        num_above = 0;
        visit_row(logit_row_at(logits, t.vocab_size),
                  [&](int32_t, float x) { num_above += x > own; });
        num_above = block_sum(num_above, memory.of_warps);
    }
    int32_t num_top = min(t.rows[blockIdx.x].num_logprobs, t.vocab_size);
    int32_t num_listed = p.num_ranks * num_top;
    if (static_cast<int32_t>(threadIdx.x) < num_listed)
        memory.list[threadIdx.x] = top_of(parts, num_top);
    __syncthreads();
    double log_total = log_total_of(weighing_of(unpack_logit(best).logit, 1, -INFINITY), mass);
    if (static_cast<int32_t>(threadIdx.x) < num_listed)
        write_top(memory.list, num_listed, num_top, log_total, out);
    if (threadIdx.x == 0) {
        out->logprob = logprob_of(own, log_total);
        out->rank = 1 + static_cast<int32_t>(num_above);
        out->num_top = num_top;
    }
}

extern "C" cudaError_t launch_sample_report_parts(cudaStream_t stream,
                                                  const struct sample_tensors *tensors,
                                                  const struct sample_parts *parts) {
    LAUNCH(report_parts_kernel, tensors->num_rows, SAMPLE_THREADS, 0, stream, *tensors, *parts);
    return cudaGetLastError();
}

__global__ void __launch_bounds__(SAMPLE_THREADS)
    list_kernel(struct sample_tensors t, const struct sample_listed *listed, int32_t num_listed,
                float *logprobs) {
    int32_t i = blockIdx.x * SAMPLE_THREADS + threadIdx.x;
    if (i >= num_listed)
        return;
    size_t first = static_cast<size_t>(listed[i].row) * t.row_stride;
    logprobs[i] = logprob_of(tame(t.logits[first + listed[i].token]), t.log_totals[listed[i].row]);
}

extern "C" cudaError_t launch_sample_list(cudaStream_t stream, const struct sample_tensors *tensors,
                                          const struct sample_listed *listed, int32_t num_listed,
                                          float *logprobs) {
    int32_t num_blocks = (num_listed + SAMPLE_THREADS - 1) / SAMPLE_THREADS;
    LAUNCH(list_kernel, num_blocks, SAMPLE_THREADS, 0, stream, *tensors, listed, num_listed,
           logprobs);
    return cudaGetLastError();
}
