/* Runs steps of all sizes once before the KV block pool is allocated: whatever the device's
 * libraries take on first use is then taken, so that memory_info says what is left for the pool,
 * and no request waits for it. Meanwhile the algorithms of matrix products are timed, where the
 * device has several (kernels/tuning.h). */
#ifndef QUIRE_ENGINE_EXECUTOR_DRY_RUN_H
#define QUIRE_ENGINE_EXECUTOR_DRY_RUN_H

#include "engine/executor/device_watch.h"
#include "models/llama.h"

/* For DRY_RUN_TUNING_SECONDS at most, by the device's clock, algorithms are timed. */
#define DRY_RUN_TUNING_SECONDS 2.0

/* Runs steps of 1, 2, 3, 4, 6, 8, 12, ... tokens, over max_num_seqs sequences at most, and last one
 * of max_num_batched_tokens: what is timed is first what decodes need, which wait for products most.
 * Each sequence samples a token with
 * every feature of sampling on and has its hidden states summed, and the first is max_model_len
 * long. All of them live in block 0 of the cache, which each step copies to block 1: what is
 * computed means nothing. limits->num_blocks is not read. The watch sees each step; NULL: none.
 * *out_tuning says what was timed. */
int dry_run(struct backend *b, struct llama *llama, struct kv_cache *cache,
            const struct serving_limits *limits, struct device_watch *watch,
            struct tuning_report *out_tuning, struct error *err);

#endif
