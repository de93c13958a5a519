/* Chooses what the options leave open in struct serving_limits: how large a step may be, and how
 * many blocks the two pools get. Pure. */
#ifndef QUIRE_ENGINE_EXECUTOR_SIZING_H
#define QUIRE_ENGINE_EXECUTOR_SIZING_H

#include "config/base/error.h"
#include "config/serving_limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Copies the limits and fills in max_logit_rows and, where they are 0, max_num_seqs and
 * max_num_batched_tokens by the device's kind: a GPU needs many sequences in a step to be busy, one
 * of SIZING_LARGE_GPU_BYTES or more has room for more (both numbers are vLLM's), a CPU needs few. A
 * number that was requested pulls the other one along; two that contradict each other are an
 * ERROR_CONFIG. device: as backend_open names it; memory_bytes: as backend_device_memory says. */
#define SIZING_LARGE_GPU_BYTES ((size_t)70 << 30)
int sizing_choose_step(const char *device, size_t memory_bytes,
                       const struct serving_limits *requested, struct serving_limits *out,
                       struct error *err);

/* Memory for the KV block pool. */
struct kv_budget {
    size_t block_bytes;  /* of all layers */
    size_t memory_bytes; /* --kv-cache-memory-bytes; 0: chosen here */
    size_t free_bytes;   /* memory at hand, with everything but the pool in place */
    size_t total_bytes;  /* of the device; 0: the pool is in the system's memory */
    double utilization;  /* --gpu-memory-utilization: share of total_bytes to be used in all */
    bool keeps_length;   /* in the system's memory: max_model_len was chosen when there was room */
};

/* Sets limits->num_blocks. Where no number of bytes is requested: in the system's memory, what
 * max_num_seqs sequences of max_model_len tokens can need, but no more than a quarter of the memory
 * at hand and no more than 4 GiB, or one of these sequences where it keeps_length; on a device of
 * its own, what is left of its share, to the last block. Either way one such sequence must fit;
 * ERROR_CONFIG, or ERROR_MEMORY when the bytes were chosen here, says by how much it does not.
 * Bytes that were requested must be free on a device of its own (ERROR_CONFIG). */
int sizing_choose_blocks(const struct kv_budget *budget, struct serving_limits *limits,
                         struct error *err);

/* Memory for the host block pool, which takes KV blocks of preempted sequences. */
struct swap_budget {
    size_t block_bytes;        /* of all layers */
    size_t memory_bytes;       /* --swap-space; SIZE_MAX: chosen here */
    size_t free_bytes;         /* the system's memory at hand, with all else in place */
    size_t kv_bytes;           /* of the KV block pool */
    bool has_dedicated_memory; /* the KV block pool is not in the system's memory */
};

/* Sets limits->num_host_blocks. When it is chosen here: none on the CPU, whose KV block pool could
 * as well be larger; beside a GPU the smallest of 4 GiB, a quarter of the memory at hand and the KV
 * block pool. Whole blocks, possibly none. ERROR_CONFIG when what was requested is not there, or is
 * less than a block. */
int sizing_choose_host_blocks(const struct swap_budget *budget, struct serving_limits *limits,
                              struct error *err);

#endif
