/* All that one device computes with: backend, weights, workspace, KV cache and host block pool.
 * rank_load allocates them; a step allocates no device memory. Loaded, used and unloaded by one
 * thread. */
#ifndef QUIRE_ENGINE_EXECUTOR_RANK_H
#define QUIRE_ENGINE_EXECUTOR_RANK_H

#include "engine/executor.h"
#include "models/llama.h"
#include "models/weights/weights.h"

struct rank {
    const struct model *model;
    struct executor_config config; /* once the backend is open, no format is left open */
    struct executor_info *info;    /* the caller's; filled in while loading */
    struct model_shard shard;
    struct weights_options weights_options;
    struct backend *backend;
    struct weights *weights;
    struct llama *llama;
    struct kv_cache cache;
    struct buffer host_pool; /* empty: none */
};

/* As executor_create. On failure there is nothing to unload. */
int rank_load(const struct model *model, const struct executor_config *config,
              struct executor_info *info, struct rank *out, struct error *err);
void rank_unload(struct rank *rank);

/* The parts of a step, in this order. rank_begin moves the batch's blocks and computes the last
 * hidden states, without reading a late input (batch.h); a batch without tokens only moves.
 * rank_sample does the rest, and rank_wait waits until the result of the oldest step that was
 * sampled is complete: 0, or -1 with ERROR_DEVICE, after which nothing works any more. */
void rank_begin(struct rank *rank, const struct batch *batch);
void rank_sample(struct rank *rank, const struct batch *batch, struct step_result *result);
int rank_wait(struct rank *rank, struct error *err);
/* Returns whether the first two only enqueue: one step is then begun, and sampled, before the one
 * that is before it is waited for, but not two. Else they compute, and rank_wait finds it done. */
bool rank_is_asynchronous(const struct rank *rank);

/* As executor_plan. */
int rank_plan(const struct model *model, const struct executor_config *config,
              struct executor_info *info, struct error *err);

#endif
