/* The executor of real models: R ranks, each a thread with its backend, weight shard, KV cache and
 * workspace (worker.h). One rank for now; every rank reads the same flat batch. */
#ifndef QUIRE_ENGINE_EXECUTOR_WORKER_EXECUTOR_H
#define QUIRE_ENGINE_EXECUTOR_WORKER_EXECUTOR_H

#include "engine/executor/executor.h"
#include "models/files/content_hash.h"
#include "models/model.h"

#include <stdbool.h>

#define WORKER_SWAP_AUTO SIZE_MAX

struct worker_config {
    const char *device; /* as backend_open names it; "auto": cuda if it can be used, else cpu */
    enum dtype dtype;   /* of a card's activations; DTYPE_COUNT: the model's */
    enum dtype
        quantization;     /* Q8_0: float weights become that on a CPU; DTYPE_COUNT: as they are */
    bool batch_invariant; /* of a card */
    double gpu_memory_utilization; /* of a card */
    int32_t num_threads;           /* of a CPU; 0: one per available core */
    int32_t max_model_len;
    int32_t max_num_seqs;           /* 0: by device */
    int32_t max_num_batched_tokens; /* 0: by device */
    int32_t block_size;
    enum dtype kv_dtype;    /* DTYPE_COUNT: the model's, on a card its activations' */
    size_t kv_memory_bytes; /* 0: chosen from the memory at hand */
    size_t swap_bytes;      /* host memory for blocks swapped out, whole blocks of it; 0: none;
                               WORKER_SWAP_AUTO: by device */
};

/* What a worker became: limits and formats that were left to it, and memory by part, for the table
 * printed at start. */
struct worker_info {
    char device[32];       /* "cpu", "cuda" */
    char description[128]; /* for people: instruction set, threads; card */
    char why_cpu[512];     /* why "auto" is not cuda; empty otherwise */
    bool is_card;          /* its memory is its own */
    bool batch_invariant;
    char numerics[192];                       /* of the backend */
    uint8_t model_digest[CONTENT_HASH_BYTES]; /* see weights.h; zeros of what is only planned */
    enum dtype activation_dtype;
    enum dtype kv_dtype;
    int32_t max_num_seqs;
    int32_t max_num_batched_tokens;
    int32_t num_blocks;
    size_t weight_bytes;
    size_t workspace_bytes; /* of the forward pass and of the backend's operations */
    size_t kv_bytes;
    size_t overhead_bytes; /* of a card: driver, libraries and other processes */
    size_t free_bytes;     /* of a card */
    int32_t num_host_blocks;
    size_t swap_bytes;     /* of the host pool */
    int64_t swap_block_ns; /* to move one block to the host pool, measured at start; 0: no host
                              pool, or only planned */
};

/* The model outlives the executor. Returns once every rank has loaded its weights and allocated all
 * it will ever need. ERROR_CONFIG: the device is not there, or an option does not suit it;
 * ERROR_MEMORY: which part does not fit, how much is missing and what helps. */
int worker_executor_create(const struct model *model, const struct worker_config *config,
                           struct executor **out, struct worker_info *out_info, struct error *err);

/* What worker_executor_create would report, from the file's headers alone: the device is opened,
 * but nothing is loaded. A card's overhead is what is in use now; its libraries take more. Errors
 * as there. */
int worker_executor_plan(const struct model *model, const struct worker_config *config,
                         struct worker_info *out_info, struct error *err);

#endif
