/* The executor of real models: R ranks, each a thread with its backend, weight shard, KV cache and
 * workspace (worker.h). One rank for now; every rank reads the same flat batch. */
#ifndef QUIRE_ENGINE_WORKER_EXECUTOR_H
#define QUIRE_ENGINE_WORKER_EXECUTOR_H

#include "engine/executor.h"
#include "models/model.h"

struct worker_config {
    const char *backend; /* "cpu", "cpu-ref" */
    int32_t num_threads; /* compute threads of the rank; 0: one per available core */
    int32_t max_model_len;
    int32_t max_num_seqs;
    int32_t max_num_batched_tokens;
    int32_t block_size;
    enum dtype kv_dtype;
    size_t kv_memory_bytes; /* 0: chosen from the memory at hand */
};

/* One line per part, for the memory table printed at start. */
struct worker_memory {
    size_t weight_bytes;
    size_t workspace_bytes;
    size_t kv_bytes;
    int32_t num_blocks;
    char backend[160]; /* name and description */
};

/* The model outlives the executor. Returns once every rank has loaded its weights and allocated all
 * it will ever need. */
int worker_executor_create(const struct model *model, const struct worker_config *config,
                           struct executor **out, struct worker_memory *out_memory,
                           struct error *err);

#endif
