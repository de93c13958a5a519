/* The KV blocks that a rank moves before it computes a step, and what moving one takes. */
#ifndef QUIRE_ENGINE_EXECUTOR_RANK_MOVES_H
#define QUIRE_ENGINE_EXECUTOR_RANK_MOVES_H

#include "models/batch.h"

/* Enqueues the batch's swap_out, swap_in and copies on the backend, in that order; the lists stay
 * valid until the step was waited for. host_pool is memory of the backend's host_alloc; it may be
 * NULL when nothing is swapped. */
void rank_moves_enqueue(struct backend *b, struct kv_cache *cache, void *host_pool,
                        const struct batch *batch);

/* Nanoseconds to move one block to the host pool or back, at least 1: the mean over the first
 * blocks of both, a few MiB, there and back, at its best of a few times. What these blocks hold is
 * lost. Both pools have a block or more. */
int rank_moves_measure(struct backend *b, struct kv_cache *cache, void *host_pool,
                       int32_t num_host_blocks, int64_t *out_ns, struct error *err);

#endif
