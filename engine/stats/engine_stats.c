/* Bucket bounds are those of vLLM's Prometheus metrics (vllm/v1/metrics/loggers.py), so that
 * dashboards made for it read the same. Times of steps are not among them. */
#include "engine/stats/engine_stats.h"

#include "config/base/check.h"

#include <math.h>
#include <string.h>

static const double first_token_bounds[] = {
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,  0.25,  0.5,   0.75,
    1.0,   2.5,   5.0,  7.5,  10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
};
static const double output_token_bounds[] = {
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2,  0.3,  0.4,  0.5,
    0.75, 1.0,   2.5,  5.0,   7.5, 10.0, 20.0, 40.0, 80.0,
};
static const double request_time_bounds[] = {
    0.3,  0.5,  0.8,  1.0,  1.5,   2.0,   2.5,   5.0,   10.0,   15.0,   20.0,
    30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0,
};
static const double token_count_bounds[] = {
    1,    2,    5,     10,    20,    50,     100,    200,    500,     1000,
    2000, 5000, 10000, 20000, 50000, 100000, 200000, 500000, 1000000,
};
static const double choice_bounds[] = {1, 2, 5, 10, 20};
static const double iteration_bounds[] = {
    1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384,
};
/* A GPU is to wait for some 20 us at most. The first one is only of the gap: steps without one. */
static const double step_bounds[] = {
    0,      1e-6,   2e-6,   5e-6,  10e-6, 15e-6, 20e-6, 30e-6, 50e-6, 75e-6, 100e-6, 150e-6, 200e-6,
    300e-6, 500e-6, 750e-6, 0.001, 0.002, 0.005, 0.01,  0.02,  0.05,  0.1,   0.2,    0.5,    1.0,
};
#define NUM_STEP_BOUNDS ((int)(sizeof(step_bounds) / sizeof(step_bounds[0])))

#define SET_BOUNDS(histogram, array)                                                               \
    set_bounds(&(histogram), array, (int)(sizeof(array) / sizeof((array)[0])))

static void set_bounds(struct histogram *histogram, const double *bounds, int num_bounds) {
    CHECK(num_bounds <= HISTOGRAM_MAX_BUCKETS);
    histogram->bounds = bounds;
    histogram->num_bounds = num_bounds;
}

void histogram_add(struct histogram *histogram, double value) {
    int bucket = 0;
    while (bucket < histogram->num_bounds && value > histogram->bounds[bucket])
        bucket++;
    histogram->counts[bucket]++;
    histogram->sum += value;
    histogram->total++;
}

void histogram_subtract(struct histogram *from, const struct histogram *earlier) {
    for (int i = 0; i <= from->num_bounds; i++)
        from->counts[i] -= earlier->counts[i];
    from->sum -= earlier->sum;
    from->total -= earlier->total;
}

double histogram_quantile(const struct histogram *histogram, double quantile) {
    double rank = quantile * (double)histogram->total, below = 0;
    int i = 0;
    if (histogram->total == 0)
        return NAN;
    while (i < histogram->num_bounds && below + (double)histogram->counts[i] < rank)
        below += (double)histogram->counts[i++];
    double low = i > 0 ? histogram->bounds[i - 1] : 0;
    if (i == histogram->num_bounds || histogram->counts[i] == 0)
        return low;
    return low + (histogram->bounds[i] - low) * (rank - below) / (double)histogram->counts[i];
}

void engine_stats_init(struct engine_stats *stats) {
    memset(stats, 0, sizeof(*stats));
    SET_BOUNDS(stats->time_to_first_token, first_token_bounds);
    SET_BOUNDS(stats->inter_token_latency, output_token_bounds);
    SET_BOUNDS(stats->time_per_output_token, output_token_bounds);
    SET_BOUNDS(stats->e2e_latency, request_time_bounds);
    SET_BOUNDS(stats->queue_time, request_time_bounds);
    SET_BOUNDS(stats->inference_time, request_time_bounds);
    SET_BOUNDS(stats->prefill_time, request_time_bounds);
    SET_BOUNDS(stats->decode_time, request_time_bounds);
    SET_BOUNDS(stats->request_prompt_tokens, token_count_bounds);
    SET_BOUNDS(stats->request_generation_tokens, token_count_bounds);
    SET_BOUNDS(stats->request_max_generation_tokens, token_count_bounds);
    SET_BOUNDS(stats->request_cached_tokens, token_count_bounds);
    SET_BOUNDS(stats->request_computed_tokens, token_count_bounds);
    SET_BOUNDS(stats->request_max_tokens, token_count_bounds);
    SET_BOUNDS(stats->request_n, choice_bounds);
    SET_BOUNDS(stats->iteration_tokens, iteration_bounds);
    SET_BOUNDS(stats->step_gap, step_bounds);
    for (int i = 0; i < NUM_STEP_PARTS; i++)
        set_bounds(&stats->step_host[i], step_bounds + 1, NUM_STEP_BOUNDS - 1);
}

const char *step_part_name(enum step_part part) {
    static const char *const names[NUM_STEP_PARTS] = {
        [STEP_PART_LOOP] = "loop",   [STEP_PART_SCHEDULE] = "schedule",
        [STEP_PART_BUILD] = "build", [STEP_PART_LAUNCH] = "launch",
        [STEP_PART_WAIT] = "wait",   [STEP_PART_COMMIT] = "commit",
    };
    return names[part];
}

void engine_stats_add_draft(struct engine_stats *stats, int32_t num_tokens, int32_t num_accepted) {
    CHECK(num_accepted >= 0 && num_accepted <= num_tokens && num_tokens <= MAX_SPECULATIVE_TOKENS);
    stats->num_drafts++;
    stats->num_draft_tokens += (uint64_t)num_tokens;
    stats->num_accepted_tokens += (uint64_t)num_accepted;
    for (int32_t i = 0; i < num_accepted; i++)
        stats->num_accepted_at[i]++;
}

uint64_t engine_stats_num_finished(const struct engine_stats *stats) {
    uint64_t count = 0;
    for (size_t i = 0; i < sizeof(stats->finished) / sizeof(stats->finished[0]); i++)
        count += stats->finished[i];
    return count;
}
