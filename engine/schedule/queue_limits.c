#include "engine/schedule/queue_limits.h"

#include "config/base/check.h"

#include <stdlib.h>
#include <string.h>

int queue_limits_init(struct queue_limits *limits) {
    CHECK(limits->num_shares >= 1);
    limits->of_share = calloc((size_t)limits->num_shares, sizeof(*limits->of_share));
    return limits->of_share != NULL ? 0 : -1;
}

size_t queue_limits_bytes(int32_t num_shares) {
    return (size_t)num_shares * sizeof(struct queue_counts);
}

void queue_limits_finish(struct queue_limits *limits) {
    free(limits->of_share);
    limits->of_share = NULL;
}

int64_t queue_limits_room(int64_t most, int32_t num_shares) {
    return num_shares > 1 && most <= INT64_MAX / 2 ? 2 * most : most;
}

/* `held` by the share, of what is `used` by all. */
static bool fits(const struct queue_limits *limits, int64_t most, int64_t used, int64_t held,
                 int64_t wanted) {
    int64_t left = queue_limits_room(most, limits->num_shares) - used;
    if (used == 0)
        return true;
    if (wanted > left)
        return false;
    return limits->num_shares == 1 || held == 0 || held + wanted <= left - wanted;
}

static void add(struct queue_counts *counts, const struct request *request) {
    counts->requests++;
    counts->tokens += request->num_prompt_tokens;
    counts->choices += request->params.num_choices;
}

bool queue_limits_take(struct queue_limits *limits, const struct request *request) {
    CHECK(request->share >= 0 && request->share < limits->num_shares);
    struct queue_counts *all = &limits->all, *own = &limits->of_share[request->share];
    if (!fits(limits, limits->max_requests, all->requests, own->requests, 1) ||
        !fits(limits, limits->max_tokens, all->tokens, own->tokens, request->num_prompt_tokens) ||
        (limits->max_choices > 0 && !fits(limits, limits->max_choices, all->choices, own->choices,
                                          request->params.num_choices)))
        return false;
    add(all, request);
    add(own, request);
    return true;
}

void queue_limits_leave(struct queue_limits *limits, const struct request *request) {
    struct queue_counts *counts[] = {&limits->all, &limits->of_share[request->share]};
    for (int i = 0; i < 2; i++) {
        int64_t before = counts[i]->requests--;
        CHECK(before >= 1);
        counts[i]->tokens -= request->num_prompt_tokens;
    }
}

void queue_limits_end_choices(struct queue_limits *limits, const struct request *request,
                              int32_t num_choices) {
    limits->all.choices -= num_choices;
    limits->of_share[request->share].choices -= num_choices;
}

bool queue_limits_is_full(const struct queue_limits *limits) {
    int64_t num_requests = limits->all.requests, num_tokens = limits->all.tokens;
    int64_t num_choices = limits->all.choices, max_choices = limits->max_choices;
    if (max_choices > 0 && num_choices > 0 &&
        num_choices >= queue_limits_room(max_choices, limits->num_shares))
        return true;
    return num_requests >= queue_limits_room(limits->max_requests, limits->num_shares) ||
           (num_requests > 0 &&
            num_tokens >= queue_limits_room(limits->max_tokens, limits->num_shares));
}
