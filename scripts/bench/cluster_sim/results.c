#include "scripts/bench/cluster_sim/results.h"

#include "config/base/array.h"
#include "config/base/clock.h"

#include <stdbool.h>
#include <stdlib.h>

int results_add(struct results *results, const struct outcome *outcome) {
    if (!array_reserve(&results->outcomes, &results->capacity, results->count + 1,
                       sizeof(*results->outcomes)))
        return -1;
    results->outcomes[results->count++] = *outcome;
    return 0;
}

void results_finish(struct results *results) {
    free(results->outcomes);
    *results = (struct results){0};
}

/* --- Figures --- */

static int compare(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Nearest rank of sorted values. */
static double percentile(const float *values, size_t count, size_t percent) {
    return count == 0 ? 0.0 : values[(count * percent + 99) / 100 - 1];
}

static bool is_good(const struct outcome *o, const struct result_limits *limits) {
    return !o->is_lost && o->ttft_s <= limits->ttft_s && o->tpot_s <= limits->tpot_s;
}

static void count_outcome(const struct outcome *o, const struct result_limits *limits,
                          struct summary *out) {
    out->num_requests++;
    out->num_lost += o->is_lost;
    out->num_done += !o->is_lost;
    out->num_resent += o->num_sent > 1;
    out->num_good += is_good(o, limits);
    if (o->is_lost)
        return;
    out->prompt_tokens += o->num_prompt_tokens;
    out->cached_tokens += o->num_cached_tokens;
    out->output_tokens += o->num_output_tokens;
}

/* Scratch of a summary. */
struct values {
    float *ttft, *tpot;
    size_t num_ttft, num_tpot;
    size_t *by_replica;
};

static void add_values(const struct outcome *o, struct values *values) {
    values->by_replica[o->replica]++;
    if (o->is_lost)
        return;
    values->ttft[values->num_ttft++] = o->ttft_s;
    if (o->num_output_tokens > 1)
        values->tpot[values->num_tpot++] = o->tpot_s;
}

static void fill_in_times(struct values *values, struct summary *out) {
    qsort(values->ttft, values->num_ttft, sizeof(*values->ttft), compare);
    qsort(values->tpot, values->num_tpot, sizeof(*values->tpot), compare);
    out->ttft_p50_s = percentile(values->ttft, values->num_ttft, 50);
    out->ttft_p99_s = percentile(values->ttft, values->num_ttft, 99);
    out->tpot_p50_s = percentile(values->tpot, values->num_tpot, 50);
    out->tpot_p99_s = percentile(values->tpot, values->num_tpot, 99);
}

static void fill_in_spread(const struct values *values, int32_t num_replicas, struct summary *out) {
    size_t most = 0;
    for (int32_t i = 0; i < num_replicas; i++)
        most = values->by_replica[i] > most ? values->by_replica[i] : most;
    if (out->num_requests > 0)
        out->most_of_mean = (double)most * num_replicas / (double)out->num_requests;
}

int results_summarise(const struct results *results, const struct result_limits *limits,
                      int32_t num_replicas, int64_t from_ns, int64_t to_ns, struct summary *out) {
    struct values values = {
        .ttft = calloc(results->count + 1, sizeof(*values.ttft)),
        .tpot = calloc(results->count + 1, sizeof(*values.tpot)),
        .by_replica = calloc((size_t)num_replicas, sizeof(*values.by_replica)),
    };
    bool has_memory = values.ttft != NULL && values.tpot != NULL && values.by_replica != NULL;
    struct summary summary = {.from_ns = from_ns, .to_ns = to_ns};
    for (size_t i = 0; has_memory && i < results->count; i++) {
        const struct outcome *o = &results->outcomes[i];
        if (o->sent_ns < from_ns || o->sent_ns >= to_ns)
            continue;
        count_outcome(o, limits, &summary);
        add_values(o, &values);
    }
    if (has_memory) {
        fill_in_times(&values, &summary);
        fill_in_spread(&values, num_replicas, &summary);
        *out = summary;
    }
    free(values.ttft);
    free(values.tpot);
    free(values.by_replica);
    return has_memory ? 0 : -1;
}

static double share(int64_t part, int64_t whole) {
    return whole == 0 ? 0.0 : (double)part / (double)whole;
}

void summary_print(const struct summary *s, FILE *file) {
    double seconds = (double)(s->to_ns - s->from_ns) / (double)CLOCK_NS_PER_S;
    fprintf(file,
            "\"seconds\": %.3f, \"requests\": %zu, \"done\": %zu, \"lost\": %zu, \"resent\": %zu, "
            "\"good\": %zu, \"requests_per_s\": %.3f, \"goodput_per_s\": %.3f, "
            "\"output_tokens_per_s\": %.1f, \"hit_rate\": %.4f, ",
            seconds, s->num_requests, s->num_done, s->num_lost, s->num_resent, s->num_good,
            (double)s->num_requests / seconds, (double)s->num_good / seconds,
            (double)s->output_tokens / seconds, share(s->cached_tokens, s->prompt_tokens));
    fprintf(file,
            "\"prompt_tokens\": %lld, \"ttft_p50_s\": %.4f, \"ttft_p99_s\": %.4f, "
            "\"tpot_p50_s\": %.5f, \"tpot_p99_s\": %.5f, \"most_of_mean\": %.3f",
            (long long)s->prompt_tokens, s->ttft_p50_s, s->ttft_p99_s, s->tpot_p50_s, s->tpot_p99_s,
            s->most_of_mean);
}
