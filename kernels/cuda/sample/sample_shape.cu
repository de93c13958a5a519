/* Steps 4 to 10 of sampling.h on the rows that llama.cpp's steps have a part in, one block a row.
 *
 * Every step keeps tokens that follow one another in the order of falling logit and rising id, so
 * what is left of a row is two bounds. Each step is one pass over the row, or a few where a mass is
 * sought. Sums are of integers, as everywhere in sampling: entropies too. */
#include "kernels/cuda/sample/sample_undecided.cuh"

struct shape_memory {
    uint64_t of_warps[2][SAMPLE_WARPS];
    struct cut_memory cut;
    struct sample_logit list[SAMPLE_MIROSTAT_TOKENS]; /* as they came */
    float sorted[SAMPLE_MIROSTAT_TOKENS];             /* falling */
    int32_t num_listed;
    int32_t top_k;
    float temperature;
};

/* What is left of a row. */
struct kept {
    float low;
    int32_t last_of_low; /* of the tokens whose logit is `low` */
    float high;
    int32_t first_of_high; /* of those whose logit is `high` */
};

struct kept_row {
    struct logit_row row;
    struct kept kept;
};

__device__ __forceinline__ bool keeps(const struct kept &k, int32_t token, float logit) {
    return (logit > k.low || (logit == k.low && token <= k.last_of_low)) &&
           (logit < k.high || (logit == k.high && token >= k.first_of_high));
}

template <class Visit>
__device__ __forceinline__ void visit_row(const struct kept_row &source, Visit visit) {
    visit_row(source.row, [&](int32_t i, float x) {
        if (keeps(source.kept, i, x))
            visit(i, x);
    });
}

__device__ __forceinline__ uint64_t mass_of(const struct kept_row &source, const struct weighing &w,
                                            struct shape_memory *memory) {
    uint64_t mass = 0;
    visit_row(source, [&](int32_t, float x) { mass += weight_of(w, x); });
    return block_sum(mass, memory->of_warps[0]);
}

/* How far a token's log probability is below that of w.max. */
__device__ __forceinline__ float depth_of(const struct weighing &w, float temperature,
                                          float logit) {
    return (w.max - logit) / temperature;
}

/* The mean of the depths, by weight, of what is left, which has that mass. The entropy is the log
 * of the mass more. */
__device__ __forceinline__ double mean_depth(const struct kept_row &source,
                                             const struct weighing &w, float temperature,
                                             uint64_t mass, struct shape_memory *memory) {
    uint64_t sum = 0;
    visit_row(source, [&](int32_t, float x) {
        uint64_t weight = weight_of(w, x);
        if (weight > 0)
            sum += static_cast<uint64_t>(static_cast<float>(weight) * depth_of(w, temperature, x));
    });
    sum = block_sum(sum, memory->of_warps[0]);
    return static_cast<double>(sum) / static_cast<double>(mass);
}

/* --- Steps 4 to 6 --- */

#define DISTANCE_STEPS 0x1p26f /* in one: the squares of 2^21 tokens fit in 63 bits */
static_assert(SAMPLE_MAX_DEVIATION == 256);

/* The first float that is at least as large. */
__device__ __forceinline__ float float_from(double bound) {
    float rounded = static_cast<float>(bound);
    return rounded < bound ? nextafterf(rounded, INFINITY) : rounded;
}

__device__ __forceinline__ float sigma_bound(const struct sample_row *r,
                                             const struct logit_row &row, float max,
                                             struct shape_memory *memory) {
    uint64_t count = 0, sum = 0, squares = 0;
    visit_row(row, [&](int32_t, float x) {
        if (x == -INFINITY)
            return;
        float distance = fminf(max - x, SAMPLE_MAX_DEVIATION);
        count++;
        sum += static_cast<uint64_t>(distance * DISTANCE_STEPS + 0.5f);
        squares += static_cast<uint64_t>(distance * distance * DISTANCE_STEPS + 0.5f);
    });
    count = block_sum(count, memory->of_warps[0]);
    sum = block_sum(sum, memory->of_warps[0]);
    squares = block_sum(squares, memory->of_warps[0]);
    double unit = 1.0 / DISTANCE_STEPS;
    return float_from(sample_sigma_bound(&r->settings, max, static_cast<double>(count),
                                         static_cast<double>(sum) * unit,
                                         static_cast<double>(squares) * unit));
}

__device__ __forceinline__ struct kept kept_by(const struct logit_row &row, const struct cut &cut,
                                               struct shape_memory *memory) {
    return {cut.logit, last_kept_equal(row, cut, memory->of_warps), INFINITY, 0};
}

__device__ __forceinline__ struct kept keep_filtered(const struct sample_row *r,
                                                     const struct logit_row &row,
                                                     const struct weighing &w,
                                                     struct shape_memory *memory) {
    const struct undecided_source source = {row, false, nullptr, 0};
    if (sample_has_cut(r, row.size))
        fill_coarse_table(row, w, r->settings.top_p < 1, &memory->cut);
    return kept_by(row, choose_cut(r, source, w, &memory->cut), memory);
}

/* --- Steps 7 and 8 --- */

/* The key of the token at which the mass is reached, in the order of falling keys; 0 when it is
 * not. */
template <class KeyOf>
__device__ __forceinline__ uint32_t find_key(const struct kept_row &source,
                                             const struct weighing &w, uint64_t mass,
                                             struct cut_memory *memory, KeyOf key_of_logit) {
    struct boundary at = {};
    at.high_key = UINT32_MAX;
    while (at.low_key < at.high_key) {
        uint32_t low = at.low_key, high = at.high_key, shift = 0;
        while ((high - low) >> shift >= SAMPLE_BINS)
            shift++;
        fill_table(source, w, true, &memory->fine, [=](float x) {
            uint32_t key = key_of_logit(x);
            return key < low || key > high ? SAMPLE_BINS : (high - key) >> shift;
        });
        at = find_boundary(memory->fine, at.before, {NO_COUNT, mass}, memory,
                           [=](uint32_t bin, struct boundary *b) {
                               uint32_t width = (1u << shift) - 1;
                               b->high_key = high - (bin << shift);
                               b->low_key = b->high_key - low > width ? b->high_key - width : low;
                           });
        if (!at.is_reached)
            return 0;
    }
    return at.low_key;
}

/* The bounds of the tokens left that pass: at least one does. */
template <class Passes>
__device__ __forceinline__ struct kept narrow(const struct kept_row &source,
                                              struct shape_memory *memory, Passes passes) {
    uint64_t least = UINT64_MAX, most = 0;
    visit_row(source, [&](int32_t i, float x) {
        if (passes(x)) {
            uint64_t packed = pack_logit(x, i);
            least = packed < least ? packed : least;
            most = packed > most ? packed : most;
        }
    });
    least = block_reduce(least, memory->of_warps[0],
                         [](uint64_t a, uint64_t b) { return a < b ? a : b; });
    most = block_reduce(most, memory->of_warps[0],
                        [](uint64_t a, uint64_t b) { return a > b ? a : b; });
    struct sample_logit low = unpack_logit(least), high = unpack_logit(most);
    return {low.logit, low.token, high.logit, high.token};
}

__device__ __forceinline__ void keep_typical(const struct sample_row *r, struct kept_row *source,
                                             const struct weighing &w, float temperature,
                                             struct shape_memory *memory) {
    uint64_t mass = mass_of(*source, w, memory);
    float mean = static_cast<float>(mean_depth(*source, w, temperature, mass, memory));
    auto nearness = [=](float x) { return key_of(-fabsf(depth_of(w, temperature, x) - mean)); };
    uint32_t key =
        find_key(*source, w, mass_share(r->settings.typical_p, mass), &memory->cut, nearness);
    source->kept = narrow(*source, memory, [=](float x) { return nearness(x) >= key; });
}

__device__ __forceinline__ void exclude_top(const struct sample_row *r, struct kept_row *source,
                                            const struct weighing &w, struct shape_memory *memory) {
    uint64_t least = mass_share(r->settings.xtc_threshold, mass_of(*source, w, memory));
    uint64_t last = UINT64_MAX;
    visit_row(*source, [&](int32_t i, float x) {
        uint64_t packed = pack_logit(x, i);
        if (weight_of(w, x) >= least && packed < last)
            last = packed;
    });
    last = block_reduce(last, memory->of_warps[0],
                        [](uint64_t a, uint64_t b) { return a < b ? a : b; });
    if (last == UINT64_MAX)
        return;
    source->kept.high = unpack_logit(last).logit;
    source->kept.first_of_high = unpack_logit(last).token;
}

/* --- Step 9 --- */

/* What is left weighs at the dynamic temperature; `w` is of temperature 1. */
__device__ __forceinline__ struct weighing weigh_dynamically(const struct sample_row *r,
                                                             const struct kept_row &source,
                                                             const struct weighing &w,
                                                             struct shape_memory *memory) {
    uint64_t mass = mass_of(source, w, memory), count = 0;
    double mean = mean_depth(source, w, 1, mass, memory);
    float max = narrow(source, memory, [](float) { return true; }).high;
    visit_row(source, [&](int32_t, float x) { count += max - x <= SAMPLE_SPAN; });
    count = block_sum(count, memory->of_warps[0]);
    if (threadIdx.x == 0) {
        double share = static_cast<double>(mass) / (1ull << SAMPLE_WEIGHT_BITS);
        memory->temperature =
            sample_dynamic_temperature(&r->settings, log(share) + mean, static_cast<double>(count));
    }
    __syncthreads();
    return weighing_of(max, memory->temperature, fmaxf(source.kept.low, max - SAMPLE_SPAN));
}

/* --- Mirostat --- */

/* Returns the top_k of version 1, from the most probable tokens. */
__device__ __forceinline__ int32_t mirostat_top_k(const struct sample_row *r,
                                                  const struct logit_row &row, struct weighing w,
                                                  struct shape_memory *memory) {
    float temperature = r->settings.temperature;
    w.lowest = fmaxf(w.lowest, w.max - SAMPLE_SPAN * temperature);
    struct cut cut = {w.lowest, 0, 0, NO_MASS};
    fill_coarse_table(row, w, false, &memory->cut);
    find_cut(row, w, false, {SAMPLE_MIROSTAT_TOKENS, NO_MASS}, &memory->cut, &cut);
    list_kept(row, cut, memory->of_warps, memory->list, &memory->num_listed);
    int32_t n = memory->num_listed, own = threadIdx.x;
    if (own < n)
        memory->sorted[place_among(memory->list, n, memory->list[own])] = memory->list[own].logit;
    __syncthreads();
    if (own == 0) {
        for (int32_t i = 0; i + 1 < n; i++)
            memory->sorted[i] = (memory->sorted[i] - memory->sorted[i + 1]) / temperature;
        memory->top_k =
            sample_mirostat_top_k(memory->sorted, n > 0 ? n - 1 : 0, r->mirostat_mu, row.size);
    }
    __syncthreads();
    return memory->top_k;
}

__device__ __forceinline__ struct kept
keep_surprising(const struct sample_row *r, const struct logit_row &row, const struct weighing &w,
                struct sample_logit best, struct shape_memory *memory) {
    struct cut cut = {w.lowest, 0, 0, NO_MASS};
    if (r->settings.mirostat == 1) {
        uint32_t k = mirostat_top_k(r, row, w, memory);
        fill_coarse_table(row, w, false, &memory->cut);
        find_cut(row, w, false, {k, NO_MASS}, &memory->cut, &cut);
        return kept_by(row, cut, memory);
    }
    struct kept_row source = {row, kept_by(row, cut, memory)};
    double share = exp2(-static_cast<double>(r->mirostat_mu));
    double least = ceil(share * static_cast<double>(mass_of(source, w, memory)));
    if (!(static_cast<double>(weight_of(w, w.max)) >= least))
        return {best.logit, best.token, INFINITY, 0};
    source.kept.low = narrow(source, memory, [=](float x) {
                          uint64_t weight = weight_of(w, x);
                          return weight > 0 && static_cast<double>(weight) >= least;
                      }).low;
    source.kept.last_of_low = INT32_MAX;
    return source.kept;
}

/* --- A row --- */

__device__ __forceinline__ void shape(const struct sample_row *r, struct kept_row *source,
                                      struct weighing *w, struct shape_memory *memory) {
    const struct sampling_settings *by = &r->settings;
    float max = w->max, temperature = sample_first_temperature(by);
    float bound = by->min_p > 0 ? min_p_bound(r, max, temperature) : -INFINITY;
    if (by->top_n_sigma > 0)
        bound = fmaxf(bound, fminf(sigma_bound(r, source->row, max, memory), max));
    *w = weighing_of(max, temperature, bound);
    source->kept = keep_filtered(r, source->row, *w, memory);
    if (by->typical_p > 0 && by->typical_p < 1)
        keep_typical(r, source, *w, temperature, memory);
    if (sample_xtc_applies(r))
        exclude_top(r, source, *w, memory);
    if (by->dynatemp_range > 0)
        *w = weigh_dynamically(r, *source, *w, memory);
}

__global__ void __launch_bounds__(SAMPLE_THREADS) shape_kernel(struct sample_tensors t) {
    __shared__ struct shape_memory memory;
    const struct sample_row *r = &t.rows[blockIdx.y];
    if (!sample_is_shaped(r))
        return;
    const float *logits = (sample_is_copied(r) ? t.edited : t.logits) +
                          static_cast<size_t>(blockIdx.y) * t.row_stride;
    struct kept_row source = {logit_row_at(logits, t.vocab_size), {}};
    struct sample_logit best = unpack_logit(find_best(source.row, memory.of_warps[0]));
    float mu = r->mirostat_mu;
    if (best.logit > -INFINITY) {
        bool is_mirostat = r->settings.mirostat != 0;
        struct weighing w = weighing_of(best.logit, r->settings.temperature, -INFINITY);
        if (is_mirostat)
            source.kept = keep_surprising(r, source.row, w, best, &memory);
        else
            shape(r, &source, &w, &memory);
        uint64_t mass = 0;
        best.token = first_to_exceed(
            source.row, memory.of_warps,
            [&](int32_t i, float x) { return keeps(source.kept, i, x) ? weight_of(w, x) : 0; },
            [&](uint64_t total) {
                mass = total;
                return __umul64hi(total, sample_random_bits(r->seed, r->position) << 11);
            });
        if (is_mirostat && threadIdx.x == 0)
            mu = sample_mirostat_next(r,
                                      static_cast<double>(weight_of(w, tame(logits[best.token]))) /
                                          static_cast<double>(mass));
    }
    if (threadIdx.x == 0) {
        write_token(t, best.token);
        t.out[blockIdx.y].mirostat_mu = mu;
    }
}

extern "C" cudaError_t launch_sample_shape(cudaStream_t stream,
                                           const struct sample_tensors *tensors) {
    LAUNCH(shape_kernel, dim3(1, tensors->num_rows), SAMPLE_THREADS, 0, stream, *tensors);
    return cudaGetLastError();
}
