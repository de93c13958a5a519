/* Which tokens of a row are kept, and which of them is drawn: steps 5, 6 and 10 of sampling.h,
 * without sorting the vocabulary.
 *
 * Without filters sampling walks sums of chunks of the row, then one chunk. With filters, tokens
 * above a bound are collected that leaves out none that is kept: for top_k from the largest logits
 * of groups of tokens, for top_p from what all tokens below it can weigh together. */
#include "kernels/cpu/sample/cpu_sample_private.h"
#include "kernels/sample_shape.h"

#include <float.h>
#include <math.h>

/* Weights are multiples of it. */
#define WEIGHT_STEP 0x1p-34
/* What lies below the bound of top_p usually weighs an eighth of what it could, and where few
 * tokens have most of the weight, those within e^-8 of the first are enough: a bound as high as
 * that keeps enough, of far fewer tokens. */
#define TOP_P_GUESS 8
#define NEAR 0x1.6p-12

int32_t cpu_sample_top_k(const struct cpu_sampler *s) {
    int32_t top_k = s->row->settings.top_k;
    return top_k > 0 && top_k < s->vocab_size ? top_k : 0;
}

enum cpu_sample_filters cpu_sample_filters(const struct cpu_sampler *s) {
    const struct sampling_settings *by = &s->row->settings;
    if (cpu_sample_top_k(s) > 0 || by->min_p > 0)
        return SAMPLE_BY_BOUND;
    return by->top_p < 1 ? SAMPLE_BY_MASS : SAMPLE_UNFILTERED;
}

double cpu_sample_sum(const struct cpu_sampler *s) {
    double total = 0;
    for (int32_t i = 0; i < cpu_sample_num_chunks(s->num_tokens); i++) {
        int32_t first = i * SAMPLE_CHUNK, left = s->num_tokens - first;
        s->sums[i] = s->op->sum_weights(s->logits + first,
                                        left < SAMPLE_CHUNK ? left : SAMPLE_CHUNK, s->scale);
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

int32_t cpu_sample_pick(const struct cpu_sampler *s, double sum, double point) {
    int32_t last = cpu_sample_num_chunks(s->num_tokens) - 1, chunk = 0;
    while (last > 0 && s->sums[last] == 0)
        last--;
    for (; chunk < last && sum + s->sums[chunk] <= point; chunk++)
        sum += s->sums[chunk];
    int32_t first = chunk * SAMPLE_CHUNK, left = s->num_tokens - first;
    int32_t n = s->op->collect(s->logits + first, s->first_token + first,
                               left < SAMPLE_CHUNK ? left : SAMPLE_CHUNK, s->scale, -INFINITY,
                               s->candidates);
    return walk(s->candidates, n, sum, point, s->first_token + first);
}

/* The k-th largest of the groups' largest logits. */
float cpu_sample_bound_of_top_k(const struct cpu_sampler *s, int32_t k) {
    int32_t n = 0;
    float largest[SAMPLE_GROUPS], lowest = s->scale.max;
    for (int32_t first = 0; first < s->num_tokens; first += SAMPLE_CHUNK) {
        int32_t left = s->num_tokens - first;
        s->op->group_max(s->logits + first, left < SAMPLE_CHUNK ? left : SAMPLE_CHUNK, largest);
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

float cpu_sample_bound_of_min_p(const struct cpu_sampler *s) {
    float min_p = s->row->settings.min_p;
    return min_p > 0 ? logf(min_p) : -INFINITY;
}

/* Before tokens weigh what is wanted, total - wanted is left, of which the next has an equal share
 * at least; half of that, since weights are rounded. */
static double share_of_rest(const struct cpu_sampler *s, double total) {
    double wanted = s->row->settings.top_p * total;
    return (total - wanted) / s->vocab_size / 2 - 2 * WEIGHT_STEP;
}

float cpu_sample_bound_of_mass(const struct cpu_sampler *s, double total) {
    double share = share_of_rest(s, total);
    return share > 0 ? (float)log(share) : -INFINITY;
}

/* Collects tokens that weigh what is wanted together, the most probable ones, of `total`. */
static int32_t collect_mass(const struct cpu_sampler *s, double total) {
    double share = share_of_rest(s, total);
    if (share <= 0)
        return cpu_sample_collect(s, -INFINITY);
    int32_t n = cpu_sample_collect(s, (float)log(fmax(TOP_P_GUESS * share, NEAR)));
    return cpu_sample_mass(s->candidates, n) >= s->row->settings.top_p * total
               ? n
               : cpu_sample_collect(s, (float)log(share));
}

int32_t cpu_sample_filter(const struct cpu_sampler *s, int32_t n, double total) {
    const struct sampling_settings *by = &s->row->settings;
    if (cpu_sample_top_k(s) > 0)
        n = cpu_sample_keep_top(s, n,
                                (struct cpu_sample_cut){.count = by->top_k, .mass = INFINITY});
    if (by->top_p >= 1)
        return n;
    if (cpu_sample_filters(s) == SAMPLE_BY_BOUND)
        total = cpu_sample_mass(s->candidates, n);
    return cpu_sample_keep_top(
        s, n, (struct cpu_sample_cut){.count = INT32_MAX, .mass = by->top_p * total});
}

/* Steps 5 and 6: fills `candidates` with the kept tokens in id order. */
static int32_t collect_kept(const struct cpu_sampler *s) {
    if (cpu_sample_filters(s) == SAMPLE_BY_MASS) {
        double total = cpu_sample_sum(s);
        return cpu_sample_filter(s, collect_mass(s, total), total);
    }
    float lowest = cpu_sample_bound_of_min_p(s);
    if (cpu_sample_top_k(s) > 0)
        lowest = fmaxf(lowest, cpu_sample_bound_of_top_k(s, cpu_sample_top_k(s)));
    return cpu_sample_filter(s, cpu_sample_collect(s, lowest), 0);
}

int32_t cpu_sample_draw(const struct cpu_sampler *s, int32_t n) {
    double uniform = sample_uniform(s->row->seed, s->row->position);
    return walk(s->candidates, n, 0, uniform * cpu_sample_mass(s->candidates, n), 0);
}

/* A row that sample_is_shaped. */
static int32_t choose_shaped(const struct cpu_sampler *s, float *mu) {
    bool is_mirostat = s->row->settings.mirostat != 0;
    int32_t n = is_mirostat ? cpu_sample_mirostat(s) : cpu_sample_shape(s, collect_kept(s));
    int32_t token = cpu_sample_draw(s, n);
    for (int32_t i = 0; is_mirostat && i < n; i++)
        if (s->candidates[i].token == token)
            *mu = sample_mirostat_next(s->row,
                                       s->candidates[i].weight / cpu_sample_mass(s->candidates, n));
    return token;
}

int32_t cpu_sample_choose(const struct cpu_sampler *s, float *mu) {
    const struct sampling_settings *by = &s->row->settings;
    *mu = by->mirostat != 0 ? s->row->mirostat_mu : 0;
    if (s->scale.max == -INFINITY)
        return 0;
    if (by->temperature == 0)
        return cpu_sample_first_of(s, s->scale.max);
    if (sample_is_shaped(s->row))
        return choose_shaped(s, mu);
    if (cpu_sample_filters(s) == SAMPLE_UNFILTERED) {
        double uniform = sample_uniform(s->row->seed, s->row->position);
        return cpu_sample_pick(s, 0, uniform * cpu_sample_sum(s));
    }
    return cpu_sample_draw(s, collect_kept(s));
}

int32_t cpu_sample_first_of(const struct cpu_sampler *s, float logit) {
    return s->first_token +
           s->op->find_above(s->logits, 0, s->num_tokens, nextafterf(logit, -INFINITY));
}
