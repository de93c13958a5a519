#include "engine/draft/draft_policy.h"

/* Eight tokens of a passage that repeats raise the rate from the first value to above 2/3, and
 * eight that do not lower it as fast. */
#define FIRST_RATE 0.1f
#define ACCEPTANCE_WEIGHT (1.0f / 8)

#define WINDOW_STEPS 64
/* Below it the first rate, so that a first draft shows what it costs. */
#define UNKNOWN_SHARE 0.05f
/* Of the tokens, by the square of their mean. With less, the noise of the times would be taken for
 * the cost of a token. */
#define LEAST_VARIANCE 1e-3
#define FORGETTING_STEPS 256

void draft_acceptance_init(struct draft_acceptance *acceptance) {
    acceptance->rate = FIRST_RATE;
}

void draft_acceptance_add(struct draft_acceptance *acceptance, bool accepted) {
    acceptance->rate += ACCEPTANCE_WEIGHT * ((accepted ? 1.0f : 0.0f) - acceptance->rate);
}

void draft_cost_add(struct draft_cost *cost, int32_t num_tokens, int64_t ns) {
    if (num_tokens <= 0 || ns <= 0)
        return;
    if (cost->num_steps < WINDOW_STEPS)
        cost->num_steps++;
    double weight = 1.0 / cost->num_steps;
    double tokens = num_tokens - cost->mean_tokens, time = (double)ns - cost->mean_ns;
    cost->mean_tokens += weight * tokens;
    cost->mean_ns += weight * time;
    cost->variance = (1 - weight) * (cost->variance + weight * tokens * tokens);
    cost->covariance = (1 - weight) * (cost->covariance + weight * tokens * time);
    double steepest = cost->mean_ns / cost->mean_tokens;
    if (cost->variance >= LEAST_VARIANCE * cost->mean_tokens * cost->mean_tokens) {
        cost->ns_per_token = cost->covariance / cost->variance;
        cost->knows_ns_per_token = true;
    } else if (cost->knows_ns_per_token) {
        /* One slow step may have made drafts look too dear to be tried again. */
        double known = cost->ns_per_token < steepest ? cost->ns_per_token : steepest;
        cost->ns_per_token = known + ((double)UNKNOWN_SHARE * steepest - known) / FORGETTING_STEPS;
    }
}

float draft_cost_share(const struct draft_cost *cost, int32_t num_tokens) {
    if (!cost->knows_ns_per_token)
        return UNKNOWN_SHARE;
    /* Noise may tilt the line so far that one of the two would be below 0. */
    double fixed_ns = cost->mean_ns - cost->ns_per_token * cost->mean_tokens;
    if (cost->ns_per_token <= 0)
        return 0.0f;
    if (fixed_ns <= 0)
        return 1.0f;
    double growing_ns = cost->ns_per_token * num_tokens;
    return (float)(growing_ns / (fixed_ns + growing_ns));
}

int32_t draft_policy_num_tokens(const struct draft_acceptance *acceptance, float share,
                                int32_t max) {
    float yield = 1.0f, time = 1.0f; /* of the step, in those without drafts */
    float right = acceptance->rate;
    int32_t count = 0;
    while (count < max && right * time > share * yield) {
        yield += right;
        time += share;
        right *= acceptance->rate;
        count++;
    }
    return count;
}

float draft_policy_gain(const struct draft_acceptance *acceptance, float share,
                        int32_t num_tokens) {
    float yield = 1.0f, right = 1.0f;
    for (int32_t i = 0; i < num_tokens; i++) {
        right *= acceptance->rate;
        yield += right;
    }
    return yield / (1.0f + share * (float)num_tokens);
}
