/* Finds where to cut a row, in order of descending logit and ascending id, by number of tokens or
 * by mass, without sorting it.
 *
 * A table of counts and masses per bin, bin 0 the most probable, is filled in one pass over the
 * row, and the boundary bin is found by a scan of the table. The first, coarse table has bins of
 * equal width in logits, so that a typical row spreads over them and two threads seldom add to the
 * same. Its boundary bin is turned into an interval of keys (logits in integer order) by bisection,
 * and divided again and again until it holds one token or tokens of one logit. Typical rows of
 * models take one or two passes; no row needs more than five. */
#ifndef QUIRE_KERNELS_CUDA_SAMPLE_SAMPLE_CUT_CUH
#define QUIRE_KERNELS_CUDA_SAMPLE_SAMPLE_CUT_CUH

#include "kernels/cuda/sample/sample_row.cuh"

#define SAMPLE_BINS_PER_LANE (SAMPLE_BINS / WARP_SIZE)

/* How the logits of a row are weighted. */
struct weighing {
    float max;          /* finite, no logit is above */
    float lowest;       /* lower logits have weight 0 and are in no bin */
    float log2_factor;  /* weight = 2^((logit - max) * log2_factor) */
    float bins_per_one; /* of the coarse table, per unit of logit */
};

struct tally {
    uint32_t count;
    uint64_t mass;
};
#define NO_COUNT UINT32_MAX /* as a limit: never reached */
#define NO_MASS UINT64_MAX

/* Bin b is at bin_slot(b): the bins of one lane of the scan lie in one bank. Masses are two halves,
 * since shared memory adds 32 bits at a time. */
struct bin_table {
    uint32_t count[SAMPLE_BINS];
    uint32_t mass_low[SAMPLE_BINS];
    uint32_t mass_high[SAMPLE_BINS];
};

/* The bin in which a limit is reached, as an interval of keys. */
struct boundary {
    bool is_reached;
    uint32_t low_key, high_key;
    struct tally before; /* all above it */
    struct tally inside;
    struct tally total; /* of the table and all above it; valid whether or not reached */
};

struct cut_memory {
    struct bin_table coarse, fine;
    struct boundary boundary;
};

/* All logits above `logit` are kept, and the first num_kept of the num_equal ones that equal it.
 * When all of a bin are kept, they may be of several logits, of which `logit` is the lowest. */
struct cut {
    float logit;
    uint32_t num_equal, num_kept;
    uint64_t mass; /* of everything kept */
};

/* Weights below e^-29 are less than one unit. */
#define SAMPLE_LOWEST_EXPONENT (-29.0f)
/* Logits further below the largest share the last bin of the coarse table. */
#define SAMPLE_COARSE_SPAN 64.0f

/* `bound`: lower logits are irrelevant. */
__device__ __forceinline__ struct weighing weighing_of(float max, float temperature, float bound) {
    struct weighing w;
    w.max = fmaxf(max, -FLT_MAX);
    w.lowest = fmaxf(w.max + SAMPLE_LOWEST_EXPONENT * temperature, bound);
    w.log2_factor = fminf(1.44269504f / temperature, FLT_MAX);
    w.bins_per_one = fminf(SAMPLE_BINS / fminf(w.max - w.lowest, SAMPLE_COARSE_SPAN), FLT_MAX);
    return w;
}

__device__ __forceinline__ uint64_t weight_of(const struct weighing &w, float logit) {
    if (!(logit >= w.lowest))
        return 0;
    float weight = exp2_fast((logit - w.max) * w.log2_factor);
    return static_cast<uint64_t>(weight * static_cast<float>(1ull << SAMPLE_WEIGHT_BITS));
}

/* Never decreases when the logit does: subtraction and product round monotonically. */
__device__ __forceinline__ uint32_t coarse_bin(const struct weighing &w, float logit) {
    return static_cast<uint32_t>(fminf((w.max - logit) * w.bins_per_one, SAMPLE_BINS - 1));
}

__device__ __forceinline__ uint32_t bin_slot(uint32_t bin) {
    return bin % SAMPLE_BINS_PER_LANE * WARP_SIZE + bin / SAMPLE_BINS_PER_LANE;
}

/* The sum of both halves is exact for any order of additions: an addition that overflows the lower
 * half carries into the upper, and exactly one thread sees it. */
__device__ __forceinline__ void add_to_bin(struct bin_table *table, uint32_t bin, uint64_t mass) {
    uint32_t slot = bin_slot(bin), low = static_cast<uint32_t>(mass);
    uint32_t high = static_cast<uint32_t>(mass >> 32);
    atomicAdd(&table->count[slot], 1u);
    if (low != 0 && atomicAdd(&table->mass_low[slot], low) > UINT32_MAX - low)
        high++;
    if (high != 0)
        atomicAdd(&table->mass_high[slot], high);
}

/* bin_of returns the bin of a logit, or SAMPLE_BINS for none. Without use_mass only counts are
 * filled. The last reader of the table has passed a barrier since, that of find_boundary. Source: a
 * logit_row, or anything else that visit_row takes. */
template <class Source, class BinOf>
__device__ __forceinline__ void fill_table(const Source &source, const struct weighing &w,
                                           bool use_mass, struct bin_table *table, BinOf bin_of) {
    for (int i = threadIdx.x; i < SAMPLE_BINS; i += SAMPLE_THREADS)
        table->count[i] = table->mass_low[i] = table->mass_high[i] = 0;
    __syncthreads();
    visit_row(source, [&](int32_t, float x) {
        uint32_t bin = bin_of(x);
        if (bin < SAMPLE_BINS)
            add_to_bin(table, bin, use_mass ? weight_of(w, x) : 0);
    });
}

__device__ __forceinline__ void fill_coarse_table(const struct logit_row &row,
                                                  const struct weighing &w, bool use_mass,
                                                  struct cut_memory *memory) {
    fill_table(row, w, use_mass, &memory->coarse,
               [&](float x) { return x >= w.lowest ? coarse_bin(w, x) : SAMPLE_BINS; });
}

__device__ __forceinline__ struct tally operator+(struct tally a, struct tally b) {
    return {a.count + b.count, a.mass + b.mass};
}

__device__ __forceinline__ struct tally bin_tally(const struct bin_table &table, uint32_t bin) {
    uint32_t slot = bin_slot(bin);
    return {table.count[slot],
            static_cast<uint64_t>(table.mass_high[slot]) << 32 | table.mass_low[slot]};
}

__device__ __forceinline__ bool is_reached(struct tally so_far, struct tally limit) {
    return so_far.count >= limit.count || so_far.mass >= limit.mass;
}

/* Returns the sum of the lanes' tallies up to this lane's. */
__device__ __forceinline__ struct tally warp_scan(struct tally x) {
    int lane = threadIdx.x % WARP_SIZE;
    for (int lanes = 1; lanes < WARP_SIZE; lanes *= 2) {
        struct tally below = {__shfl_up_sync(FULL_MASK, x.count, lanes),
                              __shfl_up_sync(FULL_MASK, x.mass, lanes)};
        if (lane >= lanes)
            x = x + below;
    }
    return x;
}

/* Scans the table, which begins after `before`; called by one warp. set_keys(bin, boundary) fills
 * in the bin's interval. */
template <class SetKeys>
__device__ __forceinline__ void scan_table(const struct bin_table &table, struct tally before,
                                           struct tally limit, struct boundary *out,
                                           SetKeys set_keys) {
    uint32_t lane = threadIdx.x % WARP_SIZE, first = lane * SAMPLE_BINS_PER_LANE;
    struct tally own = {0, 0};
    for (uint32_t i = 0; i < SAMPLE_BINS_PER_LANE; i++)
        own = own + bin_tally(table, first + i);
    struct tally upto = before + warp_scan(own);
    unsigned lanes = __ballot_sync(FULL_MASK, is_reached(upto, limit));
    if (lane == WARP_SIZE - 1) {
        out->total = upto;
        out->is_reached = lanes != 0;
    }
    if (__ffs(lanes) != static_cast<int>(lane) + 1)
        return;
    struct tally sum = {upto.count - own.count, upto.mass - own.mass}, inside;
    uint32_t bin = first;
    while (inside = bin_tally(table, bin), !is_reached(sum + inside, limit)) {
        sum = sum + inside;
        bin++;
    }
    out->before = sum;
    out->inside = inside;
    set_keys(bin, out);
}

template <class SetKeys>
__device__ __forceinline__ struct boundary
find_boundary(const struct bin_table &table, struct tally before, struct tally limit,
              struct cut_memory *memory, SetKeys set_keys) {
    __syncthreads();
    if (threadIdx.x < WARP_SIZE)
        scan_table(table, before, limit, &memory->boundary, set_keys);
    __syncthreads();
    return memory->boundary;
}

/* The lowest key of the coarse bins 0 to `bin`. */
__device__ __forceinline__ uint32_t lowest_key(const struct weighing &w, uint32_t bin) {
    uint32_t low = key_of(w.lowest), high = key_of(w.max);
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (coarse_bin(w, logit_of(middle)) <= bin)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* The bin of the coarse table in which `limit` is reached. */
__device__ __forceinline__ struct boundary
find_coarse_boundary(const struct weighing &w, struct tally limit, struct cut_memory *memory) {
    return find_boundary(memory->coarse, {0, 0}, limit, memory,
                         [&](uint32_t bin, struct boundary *b) {
                             b->high_key = bin == 0 ? key_of(w.max) : lowest_key(w, bin - 1) - 1;
                             b->low_key = lowest_key(w, bin);
                         });
}

/* Finds where `limit`, a count or a mass of at least 1, is reached in the row whose coarse table is
 * filled; false when it is not; then only the mass in `out` is set, to that of the whole table. The
 * tables hold masses if use_mass. `source` has all tokens of the boundary bin. */
template <class Source>
__device__ __forceinline__ bool find_cut(const Source &source, const struct weighing &w,
                                         bool use_mass, struct tally limit,
                                         struct cut_memory *memory, struct cut *out) {
    struct boundary at = find_coarse_boundary(w, limit, memory);
    out->mass = at.total.mass;
    if (!at.is_reached)
        return false;
    while (at.inside.count > 1 && at.low_key < at.high_key) {
        uint32_t low = at.low_key, high = at.high_key, shift = 0;
        while ((high - low) >> shift >= SAMPLE_BINS)
            shift++;
        fill_table(source, w, use_mass, &memory->fine, [=](float x) {
            uint32_t key = key_of(x);
            return key < low || key > high ? SAMPLE_BINS : (high - key) >> shift;
        });
        at = find_boundary(memory->fine, at.before, limit, memory,
                           [=](uint32_t bin, struct boundary *b) {
                               uint32_t width = (1u << shift) - 1;
                               b->high_key = high - (bin << shift);
                               b->low_key = b->high_key - low > width ? b->high_key - width : low;
                           });
    }
    uint64_t each = at.inside.mass / at.inside.count;
    uint64_t num_kept = limit.count - at.before.count;
    if (limit.mass != NO_MASS)
        num_kept = (limit.mass - at.before.mass + each - 1) / each;
    out->logit = logit_of(at.low_key);
    out->num_equal = at.inside.count;
    out->num_kept = static_cast<uint32_t>(num_kept < at.inside.count ? num_kept : at.inside.count);
    out->mass = at.before.mass + out->num_kept * each;
    return true;
}

/* The last of the kept tokens that equal the cut's logit. */
__device__ __forceinline__ int32_t last_kept_equal(const struct logit_row &row,
                                                   const struct cut &cut,
                                                   uint64_t (&of_warps)[2][SAMPLE_WARPS]) {
    if (cut.num_kept == cut.num_equal)
        return INT32_MAX;
    return first_to_exceed(
        row, of_warps, [&](int32_t, float x) { return x == cut.logit ? 1 : 0; },
        [&](uint64_t) { return cut.num_kept - 1; });
}

__device__ __forceinline__ bool is_kept(const struct cut &cut, int32_t last_equal, int32_t token,
                                        float logit) {
    return logit > cut.logit || (logit == cut.logit && token <= last_equal);
}

/* Lists the kept tokens in any order, for all threads of the block; `list` has room for all of
 * them, and *num_listed is in shared memory. */
__device__ __forceinline__ void list_kept(const struct logit_row &row, const struct cut &cut,
                                          uint64_t (&of_warps)[2][SAMPLE_WARPS],
                                          struct sample_logit *list, int32_t *num_listed) {
    int32_t last_equal = last_kept_equal(row, cut, of_warps);
    if (threadIdx.x == 0)
        *num_listed = 0;
    __syncthreads();
    visit_row(row, [&](int32_t i, float x) {
        if (is_kept(cut, last_equal, i, x))
            list[atomicAdd(num_listed, 1)] = {x, i};
    });
    __syncthreads();
}

/* Lists the first n tokens of a row, which has at least that many. */
__device__ __forceinline__ void collect_top(const struct logit_row &row, struct weighing w,
                                            uint32_t n, struct cut_memory *memory,
                                            uint64_t (&of_warps)[2][SAMPLE_WARPS],
                                            struct sample_logit *list, int32_t *num_listed) {
    struct cut cut = {};
    w.lowest = -INFINITY;
    fill_coarse_table(row, w, false, memory);
    find_cut(row, w, false, {n, NO_MASS}, memory, &cut);
    list_kept(row, cut, of_warps, list, num_listed);
}

/* Returns how many of the n listed tokens come before this one, by descending logit and ascending
 * id. */
__device__ __forceinline__ int32_t place_among(const struct sample_logit *list, int32_t n,
                                               struct sample_logit own) {
    int32_t place = 0;
    for (int32_t i = 0; i < n; i++)
        place += pack_logit(list[i].logit, list[i].token) > pack_logit(own.logit, own.token);
    return place;
}

#endif
