/* Chooses what the options leave open in struct serving_limits: how large a step may be, and how
 * many blocks the two pools get. Pure. */
#ifndef QUIRE_ENGINE_EXECUTOR_SIZING_H
#define QUIRE_ENGINE_EXECUTOR_SIZING_H

#include "config/base/error.h"
#include "config/serving_limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Copies the limits and fills in max_logit_rows and, if they are 0, max_num_seqs and
 * max_num_batched_tokens by the kind of device: a GPU needs many sequences in a step to be busy, a
 * GPU of at least SIZING_LARGE_GPU_BYTES has room for more (both numbers are vLLM's), a CPU needs
 * few. If one number was requested, the other is adapted to it; two that contradict each other are
 * an ERROR_CONFIG. device: a name for backend_open; memory_bytes: from backend_device_memory. */
#define SIZING_LARGE_GPU_BYTES ((size_t)70 << 30)
int sizing_choose_step(const char *device, size_t memory_bytes,
                       const struct serving_limits *requested, struct serving_limits *out,
                       struct error *err);

/* Memory for the KV block pool. */
struct kv_budget {
    size_t block_bytes;  /* of all layers */
    size_t memory_bytes; /* --kv-cache-memory-bytes; 0: chosen here */
    size_t free_bytes;   /* available memory, with everything except the pool in place */
    size_t total_bytes;  /* of the device; 0: the pool is in the system's memory */
    double utilization;  /* --gpu-memory-utilization: share of total_bytes that is used in total */
    bool keeps_length;   /* in the system's memory: max_model_len was chosen to fit */
};

/* Sets limits->num_blocks. If the size was not requested, the pool gets the following. In the
 * system's memory: what max_num_seqs sequences of max_model_len tokens can need, but at most a
 * quarter of the available memory and at most 4 GiB; with keeps_length
 * at least one of these sequences. On a device with its own memory: what is left of its share, to
 * the last block. In both cases one such sequence must fit; otherwise the error says how much is
 * missing: ERROR_CONFIG, or ERROR_MEMORY when the bytes were chosen here. Bytes that were requested
 * must be free on a device with its own memory (ERROR_CONFIG). */
int sizing_choose_blocks(const struct kv_budget *budget, struct serving_limits *limits,
                         struct error *err);

/* Memory for the host block pool, which holds KV blocks of preempted sequences. */
struct swap_budget {
    size_t block_bytes;        /* of all layers */
    size_t memory_bytes;       /* --swap-space; SIZE_MAX: chosen here */
    size_t free_bytes;         /* available system memory, with everything else in place */
    size_t kv_bytes;           /* of the KV block pool */
    bool has_dedicated_memory; /* the KV block pool is not in the system's memory */
};

/* Sets limits->num_host_blocks. If the size is chosen here: none on the CPU, whose KV block pool
 * could be larger instead; with a GPU the smallest of 4 GiB, a quarter of the available memory and
 * the KV block pool. Whole blocks, possibly none. ERROR_CONFIG when the requested memory is not
 * available, or is less than a block. */
int sizing_choose_host_blocks(const struct swap_budget *budget, struct serving_limits *limits,
                              struct error *err);

#endif
