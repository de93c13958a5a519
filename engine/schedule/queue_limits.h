/* Bounds the waiting requests, and the number of unfinished choices: in total, and per share.
 *
 * One share may fill the whole queue while no other needs it, and others still find room: with
 * several shares the total room is twice the limit, and a share may hold as much as is left for the
 * others (the dynamic threshold of shared packet buffers with alpha = 1: Choudhury and Hahne,
 * IEEE/ACM Transactions on Networking 6(2), 1998). So one greedy share gets the limit, n of them
 * get 2/(n+1) of it each, and a share that holds nothing is let in as long as anything is left.
 *
 * One thread at a time takes; any thread gives back, and reads. */
#ifndef QUIRE_ENGINE_SCHEDULE_QUEUE_LIMITS_H
#define QUIRE_ENGINE_SCHEDULE_QUEUE_LIMITS_H

#include "engine/request/request.h"

struct queue_counts {
    _Atomic int64_t requests; /* that wait */
    _Atomic int64_t tokens;   /* prompt tokens of these */
    _Atomic int64_t choices;  /* choices that have not ended */
};

struct queue_limits {
    int64_t max_requests, max_tokens;
    int64_t max_choices; /* 0: any number */
    int32_t num_shares;
    struct queue_counts all;
    struct queue_counts *of_share; /* [num_shares] */
};

/* Returns -1 when memory is short. The limits come from the fields of *limits. */
int queue_limits_init(struct queue_limits *limits);
size_t queue_limits_bytes(int32_t num_shares); /* what it allocates */
void queue_limits_finish(struct queue_limits *limits);

/* Returns the total that all shares may hold, where `most` is the limit of one share. */
int64_t queue_limits_room(int64_t most, int32_t num_shares);
/* Counts a request unless that exceeds the limits. A request that waits alone may be larger than
 * the limits. */
bool queue_limits_take(struct queue_limits *limits, const struct request *request);
/* Gives back the room of a request that no longer waits. */
void queue_limits_leave(struct queue_limits *limits, const struct request *request);
void queue_limits_end_choices(struct queue_limits *limits, const struct request *request,
                              int32_t num_choices);
/* Returns whether a request of a share that holds nothing would be refused regardless of its
 * size. */
bool queue_limits_is_full(const struct queue_limits *limits);

#endif
