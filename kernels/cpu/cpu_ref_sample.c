/* The oracle's sampling: the steps of kernels/sampling.h one after another, on a full sort of the
 * vocabulary, probabilities in double. */
#include "config/base/check.h"
#include "kernels/cpu/cpu_ref_private.h"
#include "kernels/sample_edit.h"

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

/* Steps 4 to 7. */
static int32_t choose(const struct sample_row *row, struct candidate *c, int32_t n) {
    double mass = 0, sum = 0;
    int32_t last = c[0].token;
    if (row->settings.temperature == 0 || c[0].logit == -INFINITY)
        return c[0].token;
    for (int32_t i = n - 1; i >= 0; i--)
        c[i].weight = exp(((double)c[i].logit - c[0].logit) / row->settings.temperature);
    filter(&row->settings, c, n);
    qsort(c, (size_t)n, sizeof(*c), by_token);
    for (int32_t i = 0; i < n; i++)
        mass += c[i].weight;
    double point = sample_uniform(row->seed, row->position) * mass;
    for (int32_t i = 0; i < n; i++) {
        sum += c[i].weight;
        if (c[i].weight > 0)
            last = c[i].token;
        if (sum > point)
            return c[i].token;
    }
    return last;
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
            args->out[r].token = choose(row, c, n);
        }
        sampled_tokens[args->first_row + r] = args->out[r].token;
        if (row->num_logprobs >= 0)
            report(args, row, logits, c, &args->out[r]);
    }
    free(edited);
    free(c);
}
