/* Sampling without sorting the vocabulary. Rows are dealt to the threads.
 *
 * A weight is exp((logit - max) / temperature) as a multiple of 2^-34, so that sums are exact and
 * the same in any order (vocabularies up to 2^18). Without filters sampling walks sums of chunks of
 * the row, then one chunk. With filters, tokens above a bound are collected that leaves out none
 * that is kept: for top_k from the largest logits of groups of tokens, for top_p from what all
 * tokens below it can weigh together. The cut is found by a histogram over their logits and a heap
 * of the bin it falls in. */
#include "config/base/check.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/cpu_op_scratch.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/sample_edit.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define CHUNK 512 /* tokens */
#define NUM_BINS 512
/* Weights are multiples of it. */
#define WEIGHT_STEP 0x1p-34
/* What lies below the bound of top_p usually weighs an eighth of what it could, and where few
 * tokens have most of the weight, those within e^-8 of the first are enough: a bound as high as
 * that keeps enough, of far fewer tokens. */
#define TOP_P_GUESS 8
#define NEAR 0x1.6p-12

struct sampler {
    const struct cpu_op_kernels *op;
    const struct sample_row *row;
    struct sample_scale scale;
    int32_t vocab_size;
    const float *logits;                 /* [vocab_size], edited */
    struct sample_candidate *candidates; /* [vocab_size] */
    struct sample_candidate *heap;       /* [vocab_size] */
    double *sums;                        /* [num_chunks] of weights */
};

struct sample_call {
    const struct cpu_backend *backend;
    const struct sample_args *args;
};

/* Is a more probable than b, or first among equals? */
static bool goes_before(const struct sample_candidate *a, const struct sample_candidate *b) {
    return a->logit > b->logit || (a->logit == b->logit && a->token < b->token);
}

static void sift_down(struct sample_candidate *heap, int32_t n, int32_t i) {
    struct sample_candidate moved = heap[i];
    for (int32_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && goes_before(&heap[child + 1], &heap[child]))
            child++;
        if (!goes_before(&heap[child], &moved))
            break;
        heap[i] = heap[child];
    }
    heap[i] = moved;
}

/* Limits the candidates to keep, from the most probable down, by number and by mass: until either
 * is reached. */
struct cut {
    int32_t count;
    double mass;
};

static bool reached(const struct cut *so_far, const struct cut *limit) {
    return so_far->count >= limit->count || so_far->mass >= limit->mass;
}

struct bins {
    float top;
    double scale; /* bins per unit of logit */
    struct cut bins[NUM_BINS];
};

static int bin_of(const struct bins *bins, float logit) {
    return (int)(((double)bins->top - logit) * bins->scale);
}

static void fill_bins(struct bins *bins, const struct sample_candidate *c, int32_t n) {
    float lowest = bins->top;
    for (int32_t i = 0; i < n; i++)
        lowest = c[i].logit < lowest ? c[i].logit : lowest;
    double span = (double)bins->top - lowest;
    bins->scale = span > 0 ? (NUM_BINS - 1) / span : 0;
    memset(bins->bins, 0, sizeof(bins->bins));
    for (int32_t i = 0; i < n; i++) {
        struct cut *bin = &bins->bins[bin_of(bins, c[i].logit)];
        bin->count++;
        bin->mass += c[i].weight;
    }
}

/* The last candidate to keep, of those in bin `boundary`; `so_far` is what the bins above hold. */
static struct sample_candidate last_kept(const struct sampler *s, const struct bins *bins,
                                         int boundary, int32_t n, struct cut so_far,
                                         const struct cut *limit) {
    int32_t size = 0;
    for (int32_t i = 0; i < n; i++)
        if (bin_of(bins, s->candidates[i].logit) == boundary)
            s->heap[size++] = s->candidates[i];
    for (int32_t i = size / 2 - 1; i >= 0; i--)
        sift_down(s->heap, size, i);
    for (;;) {
        so_far.count++;
        so_far.mass += s->heap[0].weight;
        if (size == 1 || reached(&so_far, limit))
            return s->heap[0];
        s->heap[0] = s->heap[--size];
        sift_down(s->heap, size, 0);
    }
}

/* Cuts the n candidates down to the limit, leaving them in id order; returns how many are left. */
static int32_t keep_top(const struct sampler *s, int32_t n, struct cut limit) {
    struct bins bins = {.top = s->scale.max};
    struct cut so_far = {0};
    fill_bins(&bins, s->candidates, n);
    for (int b = 0; b < NUM_BINS; b++) {
        struct cut next = {so_far.count + bins.bins[b].count, so_far.mass + bins.bins[b].mass};
        if (bins.bins[b].count == 0 || !reached(&next, &limit)) {
            so_far = next;
            continue;
        }
        struct sample_candidate last = last_kept(s, &bins, b, n, so_far, &limit);
        int32_t kept = 0;
        for (int32_t i = 0; i < n; i++)
            if (!goes_before(&last, &s->candidates[i]))
                s->candidates[kept++] = s->candidates[i];
        return kept;
    }
    return n;
}

static double mass_of(const struct sample_candidate *c, int32_t n) {
    double mass = 0;
    for (int32_t i = 0; i < n; i++)
        mass += c[i].weight;
    return mass;
}

static int32_t collect(const struct sampler *s, float lowest) {
    return s->op->collect(s->logits, 0, s->vocab_size, s->scale, lowest, s->candidates);
}

static int32_t num_chunks(int32_t vocab_size) {
    return (vocab_size + CHUNK - 1) / CHUNK;
}

/* Fills `sums`; returns the sum of all weights. */
static double sum_chunks(const struct sampler *s) {
    double total = 0;
    for (int32_t i = 0; i < num_chunks(s->vocab_size); i++) {
        int32_t first = i * CHUNK, left = s->vocab_size - first;
        s->sums[i] = s->op->sum_weights(s->logits + first, left < CHUNK ? left : CHUNK, s->scale);
        total += s->sums[i];
    }
    return total;
}

/* The first of n candidates at which the sum of weights exceeds `point`. */
static int32_t walk(const struct sample_candidate *c, int32_t n, double sum, double point,
                    int32_t token) {
    for (int32_t i = 0; i < n; i++) {
        sum += c[i].weight;
        if (c[i].weight > 0)
            token = c[i].token;
        if (sum > point)
            break;
    }
    return token;
}

static int32_t sample_from_all(const struct sampler *s, double uniform) {
    double point = uniform * sum_chunks(s), sum = 0;
    int32_t last = num_chunks(s->vocab_size) - 1, chunk = 0;
    while (last > 0 && s->sums[last] == 0)
        last--;
    for (; chunk < last && sum + s->sums[chunk] <= point; chunk++)
        sum += s->sums[chunk];
    int32_t first = chunk * CHUNK, left = s->vocab_size - first;
    int32_t n = s->op->collect(s->logits + first, first, left < CHUNK ? left : CHUNK, s->scale,
                               -INFINITY, s->candidates);
    return walk(s->candidates, n, sum, point, first);
}

/* Returns a bound that k tokens reach, as far as they weigh anything: the k-th largest of the
 * groups' largest logits. */
static float bound_of_top_k(const struct sampler *s, int32_t k) {
    int32_t n = 0;
    float largest[SAMPLE_GROUPS], lowest = s->scale.max;
    for (int32_t first = 0; first < s->vocab_size; first += CHUNK) {
        int32_t left = s->vocab_size - first;
        s->op->group_max(s->logits + first, left < CHUNK ? left : CHUNK, largest);
        for (int g = 0; g < SAMPLE_GROUPS; g++)
            if (largest[g] > -INFINITY)
                s->candidates[n++] = (struct sample_candidate){.logit = fminf(largest[g], FLT_MAX),
                                                               .token = first + g};
    }
    if (n < k)
        return -INFINITY;
    n = keep_top(s, n, (struct cut){.count = k, .mass = INFINITY});
    for (int32_t i = 0; i < n; i++)
        lowest = fminf(lowest, s->candidates[i].logit);
    return (lowest - s->scale.max) / s->scale.temperature;
}

/* Collects tokens that weigh `wanted` together, the most probable ones, of `total`. Before they do,
 * total - wanted is left, of which the next has an equal share at least; half of that, since
 * weights are rounded. */
static int32_t collect_top_p(const struct sampler *s, double total, double wanted) {
    double share = (total - wanted) / s->vocab_size / 2 - 2 * WEIGHT_STEP;
    if (share <= 0)
        return collect(s, -INFINITY);
    int32_t n = collect(s, (float)log(fmax(TOP_P_GUESS * share, NEAR)));
    return mass_of(s->candidates, n) >= wanted ? n : collect(s, (float)log(share));
}

/* Steps 5 and 6: fills `candidates` with the kept tokens in id order. */
static int32_t filter(const struct sampler *s) {
    const struct sampling_settings *by = &s->row->settings;
    bool use_top_k = by->top_k > 0 && by->top_k < s->vocab_size, use_top_p = by->top_p < 1;
    float lowest = by->min_p > 0 ? logf(by->min_p) : -INFINITY;
    if (use_top_p && !use_top_k && by->min_p <= 0) {
        double total = sum_chunks(s), wanted = by->top_p * total;
        int32_t n = collect_top_p(s, total, wanted);
        return keep_top(s, n, (struct cut){.count = INT32_MAX, .mass = wanted});
    }
    if (use_top_k)
        lowest = fmaxf(lowest, bound_of_top_k(s, by->top_k));
    int32_t n = collect(s, lowest);
    if (use_top_k)
        n = keep_top(s, n, (struct cut){.count = by->top_k, .mass = INFINITY});
    if (use_top_p) {
        double wanted = by->top_p * mass_of(s->candidates, n);
        n = keep_top(s, n, (struct cut){.count = INT32_MAX, .mass = wanted});
    }
    return n;
}

/* Steps 4 to 7. */
static int32_t choose(const struct sampler *s) {
    const struct sampling_settings *by = &s->row->settings;
    if (s->scale.max == -INFINITY)
        return 0;
    if (by->temperature == 0)
        return s->op->find_above(s->logits, 0, s->vocab_size, nextafterf(s->scale.max, -INFINITY));
    double uniform = sample_uniform(s->row->seed, s->row->position);
    bool top_k = by->top_k > 0 && by->top_k < s->vocab_size;
    if (!top_k && by->top_p >= 1 && by->min_p <= 0)
        return sample_from_all(s, uniform);
    int32_t n = filter(s);
    return walk(s->candidates, n, 0, uniform * mass_of(s->candidates, n), 0);
}

static float known(float logit) {
    return isnan(logit) ? -INFINITY : fminf(logit, FLT_MAX);
}

static float logprob_of(float logit, double log_total) {
    return logit == -INFINITY ? -INFINITY : (float)(logit - log_total);
}

/* Puts a token into the falling list of `size` logits at most `capacity` long, after its equals;
 * returns the new size. */
static int32_t insert_top(struct sample_output *out, float logits[SAMPLE_MAX_LOGPROBS],
                          int32_t size, int32_t capacity, int32_t token, float logit) {
    int32_t i = size < capacity ? size : capacity - 1;
    if (size == capacity && !(logit > logits[i]))
        return size;
    for (; i > 0 && logits[i - 1] < logit; i--) {
        logits[i] = logits[i - 1];
        out->top_tokens[i] = out->top_tokens[i - 1];
    }
    logits[i] = logit;
    out->top_tokens[i] = token;
    return size < capacity ? size + 1 : capacity;
}

static void find_top(const struct cpu_op_kernels *op, const float *logits, int32_t n,
                     double log_total, struct sample_output *out) {
    float top[SAMPLE_MAX_LOGPROBS];
    int32_t capacity = out->num_top, size = 0;
    for (int32_t i = 0; i < capacity; i++)
        size = insert_top(out, top, size, capacity, i, known(logits[i]));
    if (capacity > 0) {
        int32_t i = op->find_above(logits, capacity, n, top[capacity - 1]);
        for (; i < n; i = op->find_above(logits, i + 1, n, top[capacity - 1]))
            insert_top(out, top, size, capacity, i, known(logits[i]));
    }
    for (int32_t i = 0; i < capacity; i++)
        out->top_logprobs[i] = logprob_of(top[i], log_total);
}

/* Step 1, once the token is known; `logits` are the raw ones. */
static void report(const struct cpu_op_kernels *op, const struct sample_args *args,
                   const struct sample_row *row, const float *logits, struct sample_output *out) {
    int32_t n = args->vocab_size;
    struct sample_scale scale = {.max = op->max(logits, n), .temperature = 1};
    double log_total =
        scale.max == -INFINITY ? 0 : scale.max + log(op->sum_weights(logits, n, scale));
    float own = known(logits[out->token]);
    out->logprob = logprob_of(own, log_total);
    out->rank = 1 + op->count_above(logits, n, fmaxf(logits[out->token], -INFINITY));
    out->num_top = row->num_logprobs < n ? row->num_logprobs : n;
    find_top(op, logits, n, log_total, out);
    for (int32_t i = 0; i < row->num_listed; i++)
        args->listed_logprobs[row->first_listed_logprob + i] =
            logprob_of(known(logits[args->listed[row->first_listed + i]]), log_total);
}

static size_t worker_bytes(int32_t vocab_size) {
    return (size_t)vocab_size * (2 * sizeof(struct sample_candidate) + sizeof(float)) +
           (size_t)num_chunks(vocab_size) * sizeof(double);
}

static void sample_one(const struct sample_call *call, int64_t r, void *memory) {
    const struct sample_args *args = call->args;
    const struct cpu_op_kernels *op = call->backend->op;
    const struct sample_row *row = &args->rows[r];
    struct sample_output *out = &args->out[r];
    int32_t n = args->vocab_size;
    float *logits = args->logits + r * (n + args->padding);
    const float *raw = logits;
    *out = (struct sample_output){.token = row->target};
    if (row->target == SAMPLE_NO_TARGET) {
        struct sample_candidate *candidates = memory, *heap = candidates + n;
        double *sums = (double *)(heap + n);
        if (row->num_logprobs >= 0 && sample_has_edits(row))
            raw = memcpy(sums + num_chunks(n), logits, (size_t)n * sizeof(float));
        if (sample_has_edits(row))
            sample_edit_logits(args, row, logits);
        struct sampler s = {.op = op,
                            .row = row,
                            .scale = {op->max(logits, n), row->settings.temperature},
                            .vocab_size = n,
                            .logits = logits,
                            .candidates = candidates,
                            .heap = heap,
                            .sums = sums};
        out->token = choose(&s);
    }
    ((int32_t *)call->backend->sampled_tokens.data)[args->first_row + r] = out->token;
    if (row->num_logprobs >= 0)
        report(op, args, row, raw, out);
}

static void sample_rows(void *context, int64_t begin, int64_t end, int worker) {
    const struct sample_call *call = context;
    void *memory = call->backend->op_scratch->workers[worker].data;
    for (int64_t r = begin; r < end; r++)
        sample_one(call, r, memory);
}

void cpu_sample(struct backend *base, const struct sample_args *args) {
    struct cpu_backend *b = (struct cpu_backend *)base;
    struct sample_call call = {.backend = b, .args = args};
    CHECK(args->first_row + args->num_sample_rows <=
          serving_limits_max_sample_rows(&b->config.limits));
    CHECK(cpu_op_scratch_reserve_workers(b->op_scratch, worker_bytes(args->vocab_size)) == 0);
    thread_pool_for(b->pool, args->num_sample_rows, 1, sample_rows, &call);
}
