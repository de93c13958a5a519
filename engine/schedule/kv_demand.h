/* The maximum that a request needs to run alone. The front end refuses a request that cannot fit,
 * and the scheduler never runs more of its sequences than fit. Pure functions; any thread. */
#ifndef QUIRE_ENGINE_SCHEDULE_KV_DEMAND_H
#define QUIRE_ENGINE_SCHEDULE_KV_DEMAND_H

#include "config/serving_limits.h"
#include "engine/request/request.h"

struct kv_demand {
    int32_t num_tokens; /* of the prompt, plus one to be generated if any is requested */
    int32_t num_seqs;   /* sequences that must run at the same time: all beams, or one choice */
    int64_t num_blocks; /* worst-case blocks of these at maximum length; shared prompt blocks
                           counted once; 0 when num_tokens exceeds max_model_len */
};

struct kv_demand kv_demand_of(const struct request *request, const struct serving_limits *limits);
/* Returns whether no part of the demand exceeds the limits. */
bool kv_demand_fits(const struct kv_demand *demand, const struct serving_limits *limits);

/* Returns the number of full prompt blocks that all sequences of the request share at any time. */
int32_t kv_demand_shared_blocks(const struct request *request, const struct serving_limits *limits);
/* Returns how many sequences of a request that fits can run at the same time at maximum length
 * without exceeding the limits: from 1 to all of them. */
int32_t kv_demand_max_running(const struct request *request, const struct serving_limits *limits);

#endif
