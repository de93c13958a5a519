/* What a request needs at most to run when it is alone. Pure; any thread. */
#ifndef QUIRE_ENGINE_SCHEDULE_KV_DEMAND_H
#define QUIRE_ENGINE_SCHEDULE_KV_DEMAND_H

#include "config/serving_limits.h"
#include "engine/request.h"

struct kv_demand {
    int32_t num_tokens; /* prompt, and one to be generated if any is asked for */
    int32_t num_seqs;   /* that must run at the same time: all beams, or one choice */
    int64_t num_blocks; /* for these, as long as they may become, with what of the prompt they
                           surely share */
};

/* Blocks at the start of the prompt that the sequences of the request surely share. */
int32_t kv_demand_shared_blocks(const struct request *request, const struct serving_limits *limits);
struct kv_demand kv_demand_of(const struct request *request, const struct serving_limits *limits);
/* No part of the demand exceeds the limits. */
bool kv_demand_fits(const struct kv_demand *demand, const struct serving_limits *limits);
/* Sequences of a request that fits which may run at the same time: 1 to all of them. */
int32_t kv_demand_max_running(const struct request *request, const struct serving_limits *limits);

#endif
