/* What a step costs on a device, as a sum over what it does. The coefficients are those that
 * fit_cost_model.py prints. */
#ifndef QUIRE_SCRIPTS_BENCH_CLUSTER_SIM_COST_MODEL_H
#define QUIRE_SCRIPTS_BENCH_CLUSTER_SIM_COST_MODEL_H

#include "config/serving_limits.h"
#include "models/batch.h"

/* Nanoseconds. */
struct cost_model {
    double step;          /* of each: reading the weights, launches, the host's part */
    double token;         /* of each token computed */
    double context_token; /* of each token in the contexts of its sequences, which are read */
    double pair;          /* of each query and key that attention compares */
    double sample;        /* of each row of logits */
};

/* What a step does. */
struct step_size {
    int64_t tokens, context_tokens, pairs, samples;
};

struct step_size step_size_of(const struct batch *batch);
/* Returns nanoseconds, at least 1. */
int64_t cost_model_ns(const struct cost_model *model, const struct step_size *step);

/* A replica's model and device. */
struct simulated_device {
    const char *name;
    struct cost_model cost;
    struct serving_limits limits; /* the server's defaults for the device */
};

/* Returns the device of that name, or NULL. */
const struct simulated_device *simulated_device_find(const char *name);
/* Returns the names of all, for people. */
const char *simulated_device_names(void);

#endif
