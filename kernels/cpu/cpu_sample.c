/* Sampling without sorting the vocabulary. Rows are dealt to the threads.
 *
 * Without filters sampling walks sums of chunks of the row, then one chunk. With filters, tokens
 * above a bound are collected that leaves out none that is kept: for top_k from the largest logits
 * of groups of tokens, for top_p from what all tokens below it can weigh together. */
#include "config/base/check.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/cpu_op_scratch.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/cpu_sample_private.h"
#include "kernels/sample_edit.h"
#include "kernels/sample_shape.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define CHUNK 512 /* tokens */
/* Weights are multiples of it. */
#define WEIGHT_STEP 0x1p-34
/* What lies below the bound of top_p usually weighs an eighth of what it could, and where few
 * tokens have most of the weight, those within e^-8 of the first are enough: a bound as high as
 * that keeps enough, of far fewer tokens. */
#define TOP_P_GUESS 8
#define NEAR 0x1.6p-12

struct sample_call {
    const struct cpu_backend *backend;
    const struct sample_args *args;
};

static int32_t num_chunks(int32_t vocab_size) {
    return (vocab_size + CHUNK - 1) / CHUNK;
}

/* Fills `sums`; returns the sum of all weights. */
static double sum_chunks(const struct cpu_sampler *s) {
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

static int32_t sample_from_all(const struct cpu_sampler *s, double uniform) {
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
static float bound_of_top_k(const struct cpu_sampler *s, int32_t k) {
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
    n = cpu_sample_keep_top(s, n, (struct cpu_sample_cut){.count = k, .mass = INFINITY});
    for (int32_t i = 0; i < n; i++)
        lowest = fminf(lowest, s->candidates[i].logit);
    return (lowest - s->scale.max) / s->scale.temperature;
}

/* Collects tokens that weigh `wanted` together, the most probable ones, of `total`. Before they do,
 * total - wanted is left, of which the next has an equal share at least; half of that, since
 * weights are rounded. */
static int32_t collect_top_p(const struct cpu_sampler *s, double total, double wanted) {
    double share = (total - wanted) / s->vocab_size / 2 - 2 * WEIGHT_STEP;
    if (share <= 0)
        return cpu_sample_collect(s, -INFINITY);
    int32_t n = cpu_sample_collect(s, (float)log(fmax(TOP_P_GUESS * share, NEAR)));
    return cpu_sample_mass(s->candidates, n) >= wanted ? n
                                                       : cpu_sample_collect(s, (float)log(share));
}

/* Steps 5 and 6: fills `candidates` with the kept tokens in id order. */
static int32_t filter(const struct cpu_sampler *s) {
    const struct sampling_settings *by = &s->row->settings;
    bool use_top_k = by->top_k > 0 && by->top_k < s->vocab_size, use_top_p = by->top_p < 1;
    float lowest = by->min_p > 0 ? logf(by->min_p) : -INFINITY;
    if (use_top_p && !use_top_k && by->min_p <= 0) {
        double total = sum_chunks(s), wanted = by->top_p * total;
        int32_t n = collect_top_p(s, total, wanted);
        return cpu_sample_keep_top(s, n,
                                   (struct cpu_sample_cut){.count = INT32_MAX, .mass = wanted});
    }
    if (use_top_k)
        lowest = fmaxf(lowest, bound_of_top_k(s, by->top_k));
    int32_t n = cpu_sample_collect(s, lowest);
    if (use_top_k)
        n = cpu_sample_keep_top(s, n,
                                (struct cpu_sample_cut){.count = by->top_k, .mass = INFINITY});
    if (use_top_p) {
        double wanted = by->top_p * cpu_sample_mass(s->candidates, n);
        n = cpu_sample_keep_top(s, n, (struct cpu_sample_cut){.count = INT32_MAX, .mass = wanted});
    }
    return n;
}

/* Draws a token of the n candidates. */
static int32_t draw(const struct cpu_sampler *s, int32_t n, double uniform) {
    return walk(s->candidates, n, 0, uniform * cpu_sample_mass(s->candidates, n), 0);
}

/* A row that sample_is_shaped. */
static int32_t choose_shaped(const struct cpu_sampler *s, double uniform, float *mu) {
    bool is_mirostat = s->row->settings.mirostat != 0;
    int32_t n = is_mirostat ? cpu_sample_mirostat(s) : cpu_sample_shape(s, filter(s));
    int32_t token = draw(s, n, uniform);
    for (int32_t i = 0; is_mirostat && i < n; i++)
        if (s->candidates[i].token == token)
            *mu = sample_mirostat_next(s->row,
                                       s->candidates[i].weight / cpu_sample_mass(s->candidates, n));
    return token;
}

/* Steps 4 to 10. */
static int32_t choose(const struct cpu_sampler *s, float *mu) {
    const struct sampling_settings *by = &s->row->settings;
    *mu = by->mirostat != 0 ? s->row->mirostat_mu : 0;
    if (s->scale.max == -INFINITY)
        return 0;
    if (by->temperature == 0)
        return s->op->find_above(s->logits, 0, s->vocab_size, nextafterf(s->scale.max, -INFINITY));
    double uniform = sample_uniform(s->row->seed, s->row->position);
    bool top_k = by->top_k > 0 && by->top_k < s->vocab_size;
    if (sample_is_shaped(s->row))
        return choose_shaped(s, uniform, mu);
    if (!top_k && by->top_p >= 1 && by->min_p <= 0)
        return sample_from_all(s, uniform);
    return draw(s, filter(s), uniform);
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

/* Returns whether top_n_sigma bans logits in place. */
static bool drops_below_sigma(const struct sample_row *row) {
    return sample_is_shaped(row) && row->settings.top_n_sigma > 0 && row->settings.mirostat == 0;
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
        bool drops = drops_below_sigma(row);
        if (row->num_logprobs >= 0 && (drops || sample_has_edits(row)))
            raw = memcpy(sums + num_chunks(n), logits, (size_t)n * sizeof(float));
        if (sample_has_edits(row))
            sample_edit_logits(args, row, logits);
        if (drops)
            cpu_sample_drop_below_sigma(&row->settings, logits, n, op->max(logits, n));
        struct cpu_sampler s = {
            .op = op,
            .row = row,
            .scale = {op->max(logits, n), sample_first_temperature(&row->settings)},
            .vocab_size = n,
            .logits = logits,
            .candidates = candidates,
            .heap = heap,
            .sums = sums};
        out->token = choose(&s, &out->mirostat_mu);
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
