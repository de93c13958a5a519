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

/* How much of the system's memory a sequence of max_model_len tokens may take if that is more than
 * the pool gets by itself. */
enum kv_length {
    KV_LENGTH_SOUGHT,    /* none: the longest that fits is being searched for */
    KV_LENGTH_REQUESTED, /* 7 of 8 parts of what is available */
    KV_LENGTH_KEPT,      /* all: it was checked before the weights were read, or found */
};

/* Memory for the KV block pool. */
struct kv_budget {
    size_t block_bytes;  /* of all ranks */
    size_t memory_bytes; /* --kv-cache-memory-bytes; 0: chosen here */
    size_t free_bytes;   /* available memory, with everything except the pool in place */
    size_t total_bytes;  /* of the device; 0: the pool is in the system's memory */
    double utilization;  /* --gpu-memory-utilization: share of total_bytes that is used in total */
    size_t system_bytes; /* in the system's memory: all there is for the pool; 0: not known */
    enum kv_length length; /* likewise */
};

/* Sets limits->num_blocks. If the size was not requested, the pool gets the following. In the
 * system's memory: what max_num_seqs sequences of max_model_len tokens can need, but at most one of
 * them and, for the others, a quarter of the available memory and at most 4 GiB; of all that at
 * most half of the available memory, except as enum kv_length allows for one sequence. On a device
 * with its own memory: what is left of its share, to the last block. In both cases one such
 * sequence must fit; otherwise the error says how much is missing: ERROR_CONFIG, or ERROR_MEMORY
 * when the bytes were chosen here. Bytes that were requested must be free on a device with its own
 * memory, and not exceed system_bytes (ERROR_CONFIG). */
int sizing_choose_blocks(const struct kv_budget *budget, struct serving_limits *limits,
                         struct error *err);

/* Memory for the host block pool, which holds KV blocks of preempted sequences, and those that the
 * tiers of the prefix cache keep. */
struct swap_budget {
    size_t block_bytes;        /* of all ranks */
    size_t memory_bytes;       /* --swap-space; SIZE_MAX: chosen here */
    size_t kept_bytes;         /* added to it: --kv-host-bytes */
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
