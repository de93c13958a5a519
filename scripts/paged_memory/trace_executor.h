/* An executor without a model or memory: it moves a clock by what the step would take on the card
 * (card_model.h), and answers every row with a random ordinary token. */
#ifndef QUIRE_PAGED_MEMORY_TRACE_EXECUTOR_H
#define QUIRE_PAGED_MEMORY_TRACE_EXECUTOR_H

#include "engine/executor.h"

struct trace_executor {
    struct executor base;
    double now_s; /* the clock */
    /* Called in the middle of each step: its blocks are given out, its time is known. */
    void (*on_step)(void *context, double seconds);
    void *context;
};

void trace_executor_init(struct trace_executor *executor,
                         void (*on_step)(void *context, double seconds), void *context);

#endif
