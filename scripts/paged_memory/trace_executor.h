/* An executor without a model: it moves a clock by what the step would take on the GPU
 * (gpu_model.h), and answers every row with random ordinary tokens, whose log probabilities are
 * those of beam_rows.h.
 *
 * In place of keys and values it keeps one hash for each slot, of all tokens up to the one there,
 * which it computes from the hash of the slot before: what a beam is given depends on what its
 * blocks hold, as with a model. */
#ifndef QUIRE_SCRIPTS_PAGED_MEMORY_TRACE_EXECUTOR_H
#define QUIRE_SCRIPTS_PAGED_MEMORY_TRACE_EXECUTOR_H

#include "engine/executor/executor.h"

struct trace_executor {
    struct executor base;
    const struct batch *batch; /* submitted; NULL: none. One step at a time */
    struct step_result *result;
    int32_t block_size;
    uint64_t *histories; /* [slots of the pool] */
    double now_s;        /* the clock */
    /* Called in the middle of each step: its blocks are given out, its time is known. */
    void (*on_step)(void *context, double seconds);
    void *context;
};

/* Returns -1 when memory is short. The caller sets on_step. */
int trace_executor_init(struct trace_executor *executor, int32_t num_blocks, int32_t block_size);
void trace_executor_finish(struct trace_executor *executor);

#endif
