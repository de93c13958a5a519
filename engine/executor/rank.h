/* All that one rank computes with: backend, weights, workspace and KV cache. Loaded, used and
 * unloaded by the rank's worker thread; everything it will ever need is allocated by rank_load. */
#ifndef QUIRE_ENGINE_EXECUTOR_RANK_H
#define QUIRE_ENGINE_EXECUTOR_RANK_H

#include "engine/executor/worker_executor.h"
#include "models/llama.h"

struct rank {
    const struct model *model;
    struct worker_config config; /* limits and formats chosen, no longer left open */
    struct worker_info info;
    struct serving_limits limits;
    struct backend *backend;
    struct weights *weights;
    struct llama *llama;
    struct kv_cache cache;
    struct buffer host_pool; /* blocks swapped out; empty: none */
};

/* Errors as worker_executor_create. On failure there is nothing to unload. */
int rank_load(const struct model *model, const struct worker_config *config, struct rank *out,
              struct error *err);
void rank_unload(struct rank *rank);

/* Moves the batch's blocks, then computes; a batch without tokens only moves. As llama_forward. */
int rank_step(struct rank *rank, const struct batch *batch, struct step_result *result,
              struct error *err);

/* See worker_executor_plan. */
int rank_plan(const struct model *model, const struct worker_config *config,
              struct worker_info *out, struct error *err);

#endif
