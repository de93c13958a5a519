/* An executor in virtual time: a step takes what the cost model says, begins when the one before it
 * ends, and samples the tokens that the trace says. It computes nothing. */
#ifndef QUIRE_SCRIPTS_BENCH_CLUSTER_SIM_VIRTUAL_EXECUTOR_H
#define QUIRE_SCRIPTS_BENCH_CLUSTER_SIM_VIRTUAL_EXECUTOR_H

#include "engine/executor/executor.h"
#include "scripts/bench/cluster_sim/cost_model.h"

struct virtual_executor {
    struct executor base;
    const struct cost_model *cost;
    int64_t now_ns; /* set by the owner before a step; wait moves it to the step's end */
    int64_t ends_ns[EXECUTOR_MAX_STEPS]; /* of the steps that were submitted, the oldest first */
    int32_t num_submitted;
    int64_t last_end_ns; /* of the step submitted last */
    uint64_t num_steps, num_tokens;
    int64_t busy_ns; /* of all steps */
};

/* The cost model outlives it. The `user` of a request that it computes for is a struct call
 * (replica.h). */
void virtual_executor_init(struct virtual_executor *executor, const struct cost_model *cost);

#endif
