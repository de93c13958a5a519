/* The oracle's sampling: the steps of kernels/sampling.h one after another, on a full sort of the
 * vocabulary, probabilities in double. */
#include "config/base/check.h"
#include "kernels/cpu/ref/cpu_ref_private.h"
#include "kernels/sample_edit.h"
#include "kernels/sample_shape.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct candidate {
    int32_t token;
    float logit;
    double weight; /* probability relative to the most probable token; 0: dropped */
};

static int by_falling_logit(const void *left, const void *right) {
    const struct candidate *a = left, *b = right;
    if (a->logit != b->logit)
        return a->logit > b->logit ? -1 : 1;
    return a->token < b->token ? -1 : a->token > b->token;
}

static int by_token(const void *left, const void *right) {
    const struct candidate *a = left, *b = right;
    return a->token < b->token ? -1 : a->token > b->token;
}

static void sort_candidates(const float *logits, int32_t n, struct candidate *out) {
    for (int32_t i = 0; i < n; i++)
        out[i] = (struct candidate){.token = i, .logit = logits[i]};
    qsort(out, (size_t)n, sizeof(*out), by_falling_logit);
}

/* Drops what top_k, min_p and top_p drop; c is sorted by falling logit, weights set. */
static void filter(const struct sampling_settings *by, struct candidate *c, int32_t n) {
    double mass = 0, kept = 0;
    for (int32_t i = 0; i < n; i++) {
        bool keep = c[i].weight >= by->min_p && (by->top_k <= 0 || i < by->top_k);
        c[i].weight = keep ? c[i].weight : 0;
        mass += c[i].weight;
    }
    for (int32_t i = 0; i < n && by->top_p < 1; i++) {
        if (kept >= by->top_p * mass)
            c[i].weight = 0;
        kept += c[i].weight;
    }
}

static double mass_of(const struct candidate *c, int32_t n) {
    double mass = 0;
    for (int32_t i = 0; i < n; i++)
        mass += c[i].weight;
    return mass;
}

static void set_weights(struct candidate *c, int32_t n, double temperature) {
    for (int32_t i = n - 1; i >= 0; i--)
        c[i].weight = exp(((double)c[i].logit - c[0].logit) / temperature);
}

/* Returns how many step 4 keeps. */
static int32_t count_above_sigma(const struct sampling_settings *by, const struct candidate *c,
                                 int32_t n) {
    double sum = 0, squares = 0;
    int32_t count = 0, kept = 0;
    for (; count < n && c[count].logit > -INFINITY; count++) {
        double distance = fmin((double)c[0].logit - c[count].logit, SAMPLE_MAX_DEVIATION);
        sum += distance;
        squares += distance * distance;
    }
    double bound = sample_sigma_bound(by, c[0].logit, count, sum, squares);
    while (kept < n && c[kept].logit >= bound)
        kept++;
    return kept > 0 ? kept : 1;
}

struct ranked {
    double distance; /* of a token's -log(probability) from the entropy */
    double weight;
};

static int by_rising_distance(const void *left, const void *right) {
    const struct ranked *a = left, *b = right;
    return a->distance < b->distance ? -1 : a->distance > b->distance;
}

static double entropy_of(const struct candidate *c, int32_t n, double mass) {
    double entropy = 0;
    for (int32_t i = 0; i < n; i++)
        if (c[i].weight > 0)
            entropy -= c[i].weight / mass * log(c[i].weight / mass);
    return entropy;
}

static void keep_typical(const struct sampling_settings *by, struct candidate *c, int32_t n) {
    double mass = mass_of(c, n), entropy = entropy_of(c, n, mass), kept = 0, limit = 0;
    struct ranked *ranked = malloc((size_t)n * sizeof(*ranked));
    CHECK(ranked != NULL);
    for (int32_t i = 0; i < n; i++) {
        double distance =
            c[i].weight > 0 ? fabs(-log(c[i].weight / mass) - entropy) : (double)INFINITY;
        ranked[i] = (struct ranked){distance, c[i].weight};
    }
    qsort(ranked, (size_t)n, sizeof(*ranked), by_rising_distance);
    for (int32_t i = 0; i < n && kept < by->typical_p * mass; i++) {
        kept += ranked[i].weight;
        limit = ranked[i].distance;
    }
    for (int32_t i = 0; i < n; i++)
        if (c[i].weight > 0 && fabs(-log(c[i].weight / mass) - entropy) > limit)
            c[i].weight = 0;
    free(ranked);
}

static void exclude_top(const struct sampling_settings *by, struct candidate *c, int32_t n) {
    double mass = mass_of(c, n);
    int32_t last = n - 1;
    while (last > 0 && !(c[last].weight > 0 && c[last].weight >= by->xtc_threshold * mass))
        last--;
    for (int32_t i = 0; i < last; i++)
        c[i].weight = 0;
}

/* Step 9, for weights of temperature 1. */
static void set_dynamic_weights(const struct sampling_settings *by, struct candidate *c,
                                int32_t n) {
    double entropy = entropy_of(c, n, mass_of(c, n));
    int32_t count = 0, first = 0;
    while (c[first].weight == 0)
        first++;
    for (int32_t i = first; i < n; i++) {
        if (c[first].logit - c[i].logit > SAMPLE_SPAN)
            c[i].weight = 0;
        count += c[i].weight > 0;
    }
    double temperature = sample_dynamic_temperature(by, entropy, count);
    for (int32_t i = n - 1; i >= first; i--)
        if (c[i].weight > 0)
            c[i].weight = exp(((double)c[i].logit - c[first].logit) / temperature);
}

/* Mirostat's cut; weights are those of the temperature. */
static void keep_surprising(const struct sample_row *row, struct candidate *c, int32_t n) {
    const struct sampling_settings *by = &row->settings;
    double mass = mass_of(c, n);
    float gaps[SAMPLE_MIROSTAT_TOKENS - 1];
    int32_t num_gaps = 0, kept = 1;
    while (num_gaps < SAMPLE_MIROSTAT_TOKENS - 1 && num_gaps + 1 < n &&
           (c[0].logit - c[num_gaps + 1].logit) / by->temperature <= SAMPLE_SPAN) {
        gaps[num_gaps] = (c[num_gaps].logit - c[num_gaps + 1].logit) / by->temperature;
        num_gaps++;
    }
    if (by->mirostat == 1)
        kept = sample_mirostat_top_k(gaps, num_gaps, row->mirostat_mu, n);
    while (by->mirostat == 2 && kept < n && c[kept].weight > 0 &&
           -log2(c[kept].weight / mass) <= row->mirostat_mu)
        kept++;
    for (int32_t i = kept; i < n; i++)
        c[i].weight = 0;
}

static void shape(const struct sample_row *row, struct candidate *c, int32_t n) {
    const struct sampling_settings *by = &row->settings;
    if (by->typical_p > 0 && by->typical_p < 1)
        keep_typical(by, c, n);
    if (sample_xtc_applies(row))
        exclude_top(by, c, n);
    if (by->dynatemp_range > 0)
        set_dynamic_weights(by, c, n);
}

/* Step 10. */
static int32_t draw(const struct sample_row *row, struct candidate *c, int32_t n,
                    struct sample_output *out) {
    double sum = 0, weight = 0, mass;
    qsort(c, (size_t)n, sizeof(*c), by_token);
    mass = mass_of(c, n);
    double point = sample_uniform(row->seed, row->position) * mass;
    int32_t token = c[0].token;
    for (int32_t i = 0; i < n && !(sum > point); i++) {
        sum += c[i].weight;
        if (c[i].weight > 0)
            token = c[i].token, weight = c[i].weight;
    }
    if (row->settings.mirostat != 0)
        out->mirostat_mu = sample_mirostat_next(row, weight / mass);
    return token;
}

/* Steps 4 to 10. */
static int32_t choose(const struct sample_row *row, struct candidate *c, int32_t n,
                      struct sample_output *out) {
    const struct sampling_settings *by = &row->settings;
    out->mirostat_mu = by->mirostat != 0 ? row->mirostat_mu : 0;
    if (by->temperature == 0 || c[0].logit == -INFINITY)
        return c[0].token;
    if (by->top_n_sigma > 0 && by->mirostat == 0)
        n = count_above_sigma(by, c, n);
    set_weights(c, n, sample_first_temperature(by));
    if (by->mirostat != 0) {
        keep_surprising(row, c, n);
    } else {
        filter(by, c, n);
        shape(row, c, n);
    }
    return draw(row, c, n, out);
}

static float logprob_of(float logit, double log_total) {
    return logit == -INFINITY ? -INFINITY : (float)(logit - log_total);
}

/* Step 1; `logits` are the raw ones, c is scratch. */
static void report(const struct sample_args *args, const struct sample_row *row,
                   const float *logits, struct candidate *c, struct sample_output *out) {
    double sum = 0;
    int32_t n = args->vocab_size;
    sort_candidates(logits, n, c);
    for (int32_t i = n - 1; i >= 0; i--)
        sum += exp((double)c[i].logit - c[0].logit);
    double log_total = c[0].logit + log(sum);
    float own = logits[out->token];
    out->logprob = logprob_of(own, log_total);
    out->rank = 1;
    for (int32_t i = 0; i < n; i++)
        out->rank += logits[i] > own;
    out->num_top = row->num_logprobs < n ? row->num_logprobs : n;
    for (int32_t i = 0; i < out->num_top; i++) {
        out->top_tokens[i] = c[i].token;
        out->top_logprobs[i] = logprob_of(c[i].logit, log_total);
    }
    for (int32_t i = 0; i < row->num_listed; i++)
        args->listed_logprobs[row->first_listed_logprob + i] =
            logprob_of(logits[args->listed[row->first_listed + i]], log_total);
}

/* NaN counts as -INFINITY, and nothing is larger than the largest float. */
static void tame(float *logits, int32_t n) {
    for (int32_t i = 0; i < n; i++)
        logits[i] = isnan(logits[i]) ? -INFINITY : fminf(logits[i], FLT_MAX);
}

void cpu_ref_sample(struct backend *b, const struct sample_args *args) {
    const struct cpu_ref *ref = (const struct cpu_ref *)b;
    int32_t *sampled_tokens = ref->sampled_tokens.data;
    CHECK(args->first_row + args->num_sample_rows <= ref->max_sample_rows);
    int32_t n = args->vocab_size;
    struct candidate *c = malloc((size_t)n * sizeof(*c));
    float *edited = malloc((size_t)n * sizeof(*edited));
    CHECK(c && edited);
    for (int32_t r = 0; r < args->num_sample_rows; r++) {
        const struct sample_row *row = &args->rows[r];
        float *logits = args->logits + (size_t)r * ((size_t)n + (size_t)args->padding);
        args->out[r] = (struct sample_output){.token = row->target};
        tame(logits, n);
        if (row->target == SAMPLE_NO_TARGET) {
            memcpy(edited, logits, (size_t)n * sizeof(*edited));
            sample_edit_logits(args, row, edited);
            tame(edited, n);
            sort_candidates(edited, n, c);
            args->out[r].token = choose(row, c, n, &args->out[r]);
        }
        sampled_tokens[args->first_row + r] = args->out[r].token;
        if (row->num_logprobs >= 0)
            report(args, row, logits, c, &args->out[r]);
    }
    free(edited);
    free(c);
}
