/* What is going to happen in virtual time: a binary heap of events, the earliest first, in the
 * order in which they were added where times are equal. */
#ifndef QUIRE_SCRIPTS_BENCH_CLUSTER_SIM_EVENT_QUEUE_H
#define QUIRE_SCRIPTS_BENCH_CLUSTER_SIM_EVENT_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum event_kind {
    EVENT_ARRIVAL, /* of the next conversation */
    EVENT_TURN,    /* call: is sent */
    EVENT_STEP,    /* replica: its step ends, or it has something to do */
    EVENT_KILL,    /* replica */
    EVENT_DRAIN,   /* replica */
    EVENT_RETURN,  /* replica: it is there again, with an empty cache */
};

struct event {
    int64_t time_ns;
    uint64_t order; /* set by event_queue_add */
    enum event_kind kind;
    int32_t replica;
    uint32_t life; /* of the replica: what a killed one was to do is not done */
    void *call;
};

struct event_queue {
    struct event *heap;
    size_t count, capacity;
    uint64_t num_added;
};

/* Zeroed, it is empty. Returns -1 when memory is short. */
int event_queue_add(struct event_queue *queue, struct event event);
/* Takes the first event out; false: there is none. */
bool event_queue_take(struct event_queue *queue, struct event *out);
void event_queue_finish(struct event_queue *queue);

#endif
