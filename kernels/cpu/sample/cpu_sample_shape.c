/* llama.cpp's steps on the tokens that the others leave. */
#include "kernels/cpu/sample/cpu_sample_private.h"
#include "kernels/sample_shape.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

/* A NaN counts as -INFINITY, as everywhere. */
void cpu_sample_drop_below_sigma(const struct sampling_settings *by, float *logits, int32_t n,
                                 float max) {
    double sum = 0, squares = 0, count = 0;
    for (int32_t i = 0; i < n; i++) {
        if (!(logits[i] > -INFINITY))
            continue;
        double distance = fmin((double)max - logits[i], SAMPLE_MAX_DEVIATION);
        distance = distance > 0 ? distance : 0;
        sum += distance;
        squares += distance * distance;
        count++;
    }
    double bound = sample_sigma_bound(by, max, count, sum, squares);
    for (int32_t i = 0; count > 0 && i < n; i++)
        if (!(logits[i] >= bound))
            logits[i] = -INFINITY;
}

/* How far a token's log is below that of the largest logit's. */
static double depth_of(const struct cpu_sampler *s, float logit) {
    return ((double)s->scale.max - logit) / s->scale.temperature;
}

/* The mean of the candidates' depths, by weight. The entropy is the log of the mass more. */
static double mean_depth(const struct cpu_sampler *s, int32_t n, double mass) {
    double sum = 0;
    for (int32_t i = 0; i < n; i++)
        sum += s->candidates[i].weight * depth_of(s, s->candidates[i].logit);
    return sum / mass;
}

static int32_t keep_between(struct sample_candidate *c, int32_t n, float low, float high) {
    int32_t kept = 0;
    for (int32_t i = 0; i < n; i++)
        if (c[i].logit >= low && c[i].logit <= high)
            c[kept++] = c[i];
    return kept;
}

/* For as long as the cut is sought, a candidate's logit is its distance from the mean, negative. */
static int32_t keep_typical(const struct cpu_sampler *s, int32_t n) {
    struct sample_candidate *c = s->candidates, last;
    double mass = cpu_sample_mass(c, n), mean = mean_depth(s, n, mass);
    for (int32_t i = 0; i < n; i++)
        c[i].logit = -(float)fabs(depth_of(s, c[i].logit) - mean);
    struct cpu_sample_cut limit = {.count = INT32_MAX, .mass = s->row->settings.typical_p * mass};
    if (cpu_sample_find_last(s, n, 0, limit, &last))
        n = keep_between(c, n, last.logit, 0);
    for (int32_t i = 0; i < n; i++)
        c[i].logit = fminf(s->logits[c[i].token], FLT_MAX);
    return n;
}

static int32_t exclude_top(const struct cpu_sampler *s, int32_t n) {
    struct sample_candidate *c = s->candidates;
    double least = s->row->settings.xtc_threshold * cpu_sample_mass(c, n);
    int32_t last = -1, kept = 0;
    for (int32_t i = 0; i < n; i++)
        if (c[i].weight >= least && (last < 0 || c[i].logit <= c[last].logit))
            last = i;
    if (last < 0)
        return n;
    const struct sample_candidate stays = c[last];
    for (int32_t i = 0; i < n; i++)
        if (c[i].logit < stays.logit || c[i].token == stays.token)
            c[kept++] = c[i];
    return kept;
}

/* Step 9; the weights are of temperature 1. */
static void set_dynamic_weights(const struct cpu_sampler *s, int32_t n) {
    struct sample_candidate *c = s->candidates;
    double mass = cpu_sample_mass(c, n), count = 0;
    double entropy = log(mass) + mean_depth(s, n, mass);
    float max = -INFINITY;
    for (int32_t i = 0; i < n; i++)
        max = fmaxf(max, c[i].logit);
    for (int32_t i = 0; i < n; i++)
        count += max - c[i].logit <= SAMPLE_SPAN;
    double temperature = sample_dynamic_temperature(&s->row->settings, entropy, count);
    for (int32_t i = 0; i < n; i++) {
        bool is_kept = max - c[i].logit <= SAMPLE_SPAN;
        c[i].weight = is_kept ? exp(((double)c[i].logit - max) / temperature) : 0;
    }
}

int32_t cpu_sample_shape(const struct cpu_sampler *s, int32_t n) {
    const struct sampling_settings *by = &s->row->settings;
    if (by->typical_p > 0 && by->typical_p < 1)
        n = keep_typical(s, n);
    if (sample_xtc_applies(s->row))
        n = exclude_top(s, n);
    if (by->dynatemp_range > 0)
        set_dynamic_weights(s, n);
    return n;
}

static int by_falling_logit(const void *left, const void *right) {
    const struct sample_candidate *a = left, *b = right;
    return a->logit > b->logit ? -1 : a->logit < b->logit;
}

/* Changes the candidates. */
static int32_t mirostat_top_k(const struct cpu_sampler *s) {
    struct sample_candidate *c = s->candidates;
    float gaps[SAMPLE_MIROSTAT_TOKENS];
    int32_t n = cpu_sample_collect(s, -SAMPLE_SPAN);
    n = cpu_sample_keep_top(
        s, n, (struct cpu_sample_cut){.count = SAMPLE_MIROSTAT_TOKENS, .mass = INFINITY});
    qsort(c, (size_t)n, sizeof(*c), by_falling_logit);
    for (int32_t i = 0; i + 1 < n; i++)
        gaps[i] = (c[i].logit - c[i + 1].logit) / s->scale.temperature;
    return sample_mirostat_top_k(gaps, n > 0 ? n - 1 : 0, s->row->mirostat_mu, s->vocab_size);
}

/* Version 2. */
static int32_t keep_surprising(const struct cpu_sampler *s, int32_t n) {
    struct sample_candidate *c = s->candidates;
    double least = exp2(-(double)s->row->mirostat_mu) * cpu_sample_mass(c, n);
    int32_t kept = 0;
    for (int32_t i = 0; i < n; i++)
        if (c[i].weight >= least)
            c[kept++] = c[i];
    return kept > 0 ? kept
                    : cpu_sample_keep_top(s, n, (struct cpu_sample_cut){1, .mass = INFINITY});
}

int32_t cpu_sample_mirostat(const struct cpu_sampler *s) {
    if (s->row->settings.mirostat == 2)
        return keep_surprising(s, cpu_sample_collect(s, -INFINITY));
    int32_t k = mirostat_top_k(s), n = cpu_sample_collect(s, -INFINITY);
    return cpu_sample_keep_top(s, n, (struct cpu_sample_cut){k, .mass = INFINITY});
}
