/* What a rank that has a part of the vocabulary tells of a row, one block a row: the sampler's own
 * passes and cuts (sample_row.cuh, sample_cut.cuh) on a row that is shorter. Weights are of the
 * largest logit of all ranks, and their sums exact, so the point of the sum that is drawn lies with
 * the token with which it lies in the whole row. */
#include "kernels/cuda/sample/sample_parallel_launch.h"
#include "kernels/cuda/sample/sample_undecided.cuh"

struct excerpt_memory {
    uint64_t of_warps[2][SAMPLE_WARPS];
    struct cut_memory cut;
    int32_t num_listed;
    float bound;
};

__device__ __forceinline__ struct logit_row own_row(const struct sample_columns &c, int32_t row) {
    return logit_row_at(c.logits + static_cast<size_t>(row) * c.width, c.width);
}

/* Of all ranks, packed. */
__device__ __forceinline__ uint64_t best_of(const unsigned long long *of_ranks,
                                            const struct sample_columns &c, int32_t row) {
    uint64_t best = 0;
    for (int32_t rank = 0; rank < c.num_ranks; rank++) {
        uint64_t own = of_ranks[static_cast<size_t>(rank) * c.num_rows + row];
        best = own > best ? own : best;
    }
    return best;
}

/* What the tokens weigh of a row that is drawn from all of them. */
__device__ __forceinline__ struct weighing weigh_row(const struct sample_columns &c, int32_t row,
                                                     float *bound) {
    const struct sample_row *r = &c.rows[row];
    float largest = unpack_logit(best_of(c.largest, c, row)).logit;
    if (threadIdx.x == 0)
        *bound =
            r->settings.min_p > 0 ? min_p_bound(r, largest, r->settings.temperature) : -INFINITY;
    __syncthreads();
    return weighing_of(largest, r->settings.temperature, *bound);
}

__global__ void __launch_bounds__(SAMPLE_THREADS)
    largest_kernel(struct sample_columns c, unsigned long long *out) {
    __shared__ uint64_t of_warps[SAMPLE_WARPS];
    int32_t row = blockIdx.x;
    if (c.excerpts[row].kind != EXCERPT_DRAWN && !c.excerpts[row].is_reported)
        return;
    uint64_t best = find_best(own_row(c, row), of_warps);
    if (threadIdx.x == 0)
        out[row] = best;
}

extern "C" cudaError_t launch_sample_largest(cudaStream_t stream,
                                             const struct sample_columns *columns,
                                             unsigned long long *out) {
    LAUNCH(largest_kernel, columns->num_rows, SAMPLE_THREADS, 0, stream, *columns, out);
    return cudaGetLastError();
}

__global__ void __launch_bounds__(SAMPLE_THREADS)
    mass_kernel(struct sample_columns c, unsigned long long *out) {
    __shared__ uint64_t of_warps[SAMPLE_WARPS];
    __shared__ float bound;
    int32_t row = blockIdx.x;
    if (c.excerpts[row].kind != EXCERPT_DRAWN)
        return;
    const struct weighing w = weigh_row(c, row, &bound);
    uint64_t mass = 0;
    visit_row(own_row(c, row), [&](int32_t, float x) { mass += weight_of(w, x); });
    mass = block_sum(mass, of_warps);
    if (threadIdx.x == 0)
        out[row] = mass;
}

extern "C" cudaError_t launch_sample_mass(cudaStream_t stream, const struct sample_columns *columns,
                                          unsigned long long *out) {
    LAUNCH(mass_kernel, columns->num_rows, SAMPLE_THREADS, 0, stream, *columns, out);
    return cudaGetLastError();
}

/* --- Excerpts --- */

/* The whole row's first tokens, that many, are among these of the ranks. */
__device__ __forceinline__ void list_top(const struct logit_row &row, int32_t num_candidates,
                                         struct sample_logit *list, struct excerpt_memory *memory) {
    int32_t n = min(num_candidates, row.size);
    struct sample_logit best = unpack_logit(find_best(row, memory->of_warps[0]));
    if (n > 1)
        collect_top(row, weighing_of(best.logit, 1, -INFINITY), n, &memory->cut, memory->of_warps,
                    list, &memory->num_listed);
    else if (threadIdx.x == 0)
        list[0] = best;
    for (int32_t i = n + threadIdx.x; i < num_candidates; i += SAMPLE_THREADS)
        list[i] = {0, -1};
}

/* Returns the sampled token; -1 when another rank has it, or all weights are 0. */
__device__ __forceinline__ int32_t draw_own(const struct sample_columns &c, int32_t number,
                                            struct excerpt_memory *memory) {
    const struct sample_row *r = &c.rows[number];
    const struct weighing w = weigh_row(c, number, &memory->bound);
    uint64_t total = 0, before = 0, own = 0;
    for (int32_t rank = 0; rank < c.num_ranks; rank++) {
        uint64_t mass = c.masses[static_cast<size_t>(rank) * c.num_rows + number];
        before += rank < c.rank ? mass : 0;
        own = rank == c.rank ? mass : own;
        total += mass;
    }
    uint64_t target = __umul64hi(total, sample_random_bits(r->seed, r->position) << 11);
    if (target < before || target - before >= own)
        return -1;
    return first_to_exceed(
        own_row(c, number), memory->of_warps, [&](int32_t, float x) { return weight_of(w, x); },
        [&](uint64_t) { return target - before; });
}

/* Returns the row's token, numbered from the rank's first one; -1 when another rank has it. */
__device__ __forceinline__ int32_t own_token(const struct sample_columns &c, int32_t number,
                                             struct excerpt_memory *memory) {
    if (c.excerpts[number].kind == EXCERPT_DRAWN)
        return draw_own(c, number, memory);
    int32_t token = c.rows[number].target - c.first_token;
    return token >= 0 && token < c.width ? token : -1;
}

__global__ void __launch_bounds__(SAMPLE_THREADS)
    chosen_kernel(struct sample_columns c, unsigned long long *out) {
    __shared__ struct excerpt_memory memory;
    int32_t number = blockIdx.x;
    const struct row_excerpt excerpt = c.excerpts[number];
    if (!excerpt.is_reported || excerpt.kind == EXCERPT_TOP)
        return;
    int32_t token = own_token(c, number, &memory);
    if (threadIdx.x == 0)
        out[number] = token < 0 ? 0 : pack_logit(tame(own_row(c, number).logits[token]), token);
}

extern "C" cudaError_t launch_sample_chosen(cudaStream_t stream,
                                            const struct sample_columns *columns,
                                            unsigned long long *out) {
    LAUNCH(chosen_kernel, columns->num_rows, SAMPLE_THREADS, 0, stream, *columns, out);
    return cudaGetLastError();
}

/* The sums are exact, so those of the ranks' parts are those of the row. */
__device__ __forceinline__ void write_part(const struct sample_columns &c, int32_t number,
                                           struct sample_part *out, struct excerpt_memory *memory) {
    const struct logit_row row = own_row(c, number);
    const struct weighing w =
        weighing_of(unpack_logit(best_of(c.largest, c, number)).logit, 1, -INFINITY);
    const uint64_t chosen =
        c.excerpts[number].kind == EXCERPT_TOP ? 0 : best_of(c.chosen, c, number);
    /* Of a row without weights nothing is drawn, and no token is above the first. */
    float own = chosen != 0 ? unpack_logit(chosen).logit : INFINITY;
    uint64_t mass = 0, num_above = 0;
    visit_row(row, [&](int32_t, float x) {
        mass += weight_of(w, x);
        num_above += x > own;
    });
    mass = block_sum(mass, memory->of_warps[0]);
    num_above = block_sum(num_above, memory->of_warps[0]);
    if (threadIdx.x == 0) {
        out->mass = mass;
        out->num_above = num_above;
    }
    if (c.rows[number].num_logprobs > 0)
        list_top(row, c.rows[number].num_logprobs, out->top, memory);
}

__device__ __forceinline__ void copy_logits(const float *from, int32_t count, float *to) {
    for (int32_t i = threadIdx.x; i < count; i += SAMPLE_THREADS)
        to[i] = from[i];
}

__global__ void __launch_bounds__(SAMPLE_THREADS)
    excerpt_kernel(struct sample_columns c, int32_t first_row, struct sample_logit *message) {
    __shared__ struct excerpt_memory memory;
    int32_t number = first_row + blockIdx.x;
    const struct row_excerpt excerpt = c.excerpts[number];
    struct sample_logit *out = message + excerpt_place(&excerpt, c.width);
    const struct logit_row row = own_row(c, number);
    if (excerpt.kind == EXCERPT_WHOLE) {
        copy_logits(row.logits, row.size, reinterpret_cast<float *>(out));
    } else if (excerpt.kind == EXCERPT_TOP) {
        list_top(row, excerpt.num_candidates, out, &memory);
    } else if (excerpt.kind == EXCERPT_DRAWN || excerpt.kind == EXCERPT_GIVEN) {
        int32_t token = own_token(c, number, &memory);
        if (threadIdx.x == 0)
            out[0] = {token < 0 ? 0 : tame(row.logits[token]), token};
    }
    if (excerpt.is_reported)
        write_part(c, number, reinterpret_cast<struct sample_part *>(out + excerpt.num_candidates),
                   &memory);
}

extern "C" cudaError_t launch_sample_excerpt(cudaStream_t stream,
                                             const struct sample_columns *columns,
                                             int32_t first_row, int32_t num_rows,
                                             struct sample_logit *message) {
    LAUNCH(excerpt_kernel, num_rows, SAMPLE_THREADS, 0, stream, *columns, first_row, message);
    return cudaGetLastError();
}

/* After a failure of another rank a message may hold anything. */
__device__ __forceinline__ void place_part(const struct sample_message &m,
                                           const struct sample_part *from, struct sample_part *to) {
    if (threadIdx.x == 0) {
        to->mass = from->mass;
        to->num_above = from->num_above;
    }
    if (threadIdx.x < SAMPLE_MAX_LOGPROBS) {
        struct sample_logit own = from->top[threadIdx.x];
        bool is_token = own.token >= 0 && own.token < m.width;
        to->top[threadIdx.x] = {own.logit, is_token ? m.first_token + own.token : -1};
    }
}

__global__ void __launch_bounds__(SAMPLE_THREADS)
    place_kernel(struct sample_message m, float *logits, int32_t row_stride,
                 struct sample_part *parts) {
    const struct row_excerpt excerpt = m.excerpts[blockIdx.x];
    const struct sample_logit *in = m.data + excerpt_place(&excerpt, m.width);
    float *out = logits + static_cast<size_t>(blockIdx.x) * row_stride;
    if (excerpt.kind == EXCERPT_NOTHING)
        return;
    if (excerpt.kind == EXCERPT_WHOLE) {
        copy_logits(reinterpret_cast<const float *>(in), m.width, out);
        return;
    }
    if (excerpt.is_reported)
        place_part(m, reinterpret_cast<const struct sample_part *>(in + excerpt.num_candidates),
                   &parts[static_cast<size_t>(blockIdx.x) * m.num_ranks + m.rank]);
    for (int32_t i = threadIdx.x; i < m.width; i += SAMPLE_THREADS)
        out[i] = -INFINITY;
    __syncthreads();
    for (int32_t i = threadIdx.x; i < excerpt.num_candidates; i += SAMPLE_THREADS)
        if (in[i].token >= 0 && in[i].token < m.width)
            out[in[i].token] = in[i].logit;
}

extern "C" cudaError_t launch_sample_place(cudaStream_t stream,
                                           const struct sample_message *message, float *logits,
                                           int32_t row_stride, struct sample_part *parts) {
    LAUNCH(place_kernel, message->num_rows, SAMPLE_THREADS, 0, stream, *message, logits, row_stride,
           parts);
    return cudaGetLastError();
}
