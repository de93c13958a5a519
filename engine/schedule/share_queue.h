/* The waiting groups by share: decides whose turn it is. Weighted fair queueing by virtual time,
 * counted in tokens, for requests whose length nobody knows before they end: VTC ("Fairness in
 * Serving Large Language Models", Sheng et al., OSDI 2024), with its weights and its predicted
 * length.
 *
 * A share's VIRTUAL TIME is the number of tokens that were computed for it, divided by its weight:
 * tokens of prompts and of outputs, each once. Tokens from the prefix cache are free, and so is
 * what is recomputed after a preemption, or computed for drafts that are not accepted. The tokens
 * that an admitted group is expected to take (its prompt, and outputs as long as the share's last
 * ones) are counted in advance as RESERVED: so its slots count from the start, and what it does not
 * use is given back at its end.
 *
 * The share with the smallest sum of both is next, and within it the group with the most urgent
 * priority, then the first that arrived: a priority is meaningless for other shares. When a group
 * is admitted for the first time it gets its PLACE: that least sum. From then on places order the
 * groups of different shares, regardless of how their shares are served later, and a preempted
 * group waits with its place: a group never loses its turn to one of another share whose turn came
 * later, except if its share holds more than the other (fair_preemption.c), or runs others while
 * the other runs nothing. Within a share an urgent group takes the earlier place, and the others
 * move back by one each.
 *
 * An idle share gains no credit: one that begins to wait is lifted to the virtual time of who is
 * served then, as start-time fair queueing does (Goyal, Vin and Cheng, SIGCOMM 1996); while nobody
 * waits all are level. Because each admission adds to a share's virtual time, and only served
 * shares advance, every share's turn comes.
 *
 * Engine thread only. */
#ifndef QUIRE_ENGINE_SCHEDULE_SHARE_QUEUE_H
#define QUIRE_ENGINE_SCHEDULE_SHARE_QUEUE_H

#include "engine/sequence/sequence_group.h"

struct share {
    struct group_list waiting; /* by priority and arrival; those with places are the first */
    double virtual_time;       /* tokens by weight */
    int64_t num_reserved;      /* tokens, of its groups */
    double mean_output;        /* tokens of its last sequences */
    int32_t weight;            /* of its newest request */
    int32_t heap_index;        /* while a group of it waits */
    int32_t num_running;       /* groups of it that are admitted */

    /* Written by scheduler_plan.c, for the order of prefill. */
    int32_t urgent_priority; /* of its first group in a step */
    int32_t walk_priority;   /* the same, in the last walk that met the share */
    uint64_t walk;
};

/* Read by others. */
struct share_queue {
    struct share *shares;
    int32_t num_shares;
    struct share **heap; /* of those with waiting groups: the next one first */
    int32_t heap_count;
    int32_t count;  /* groups that wait */
    double current; /* virtual time of the last share whose turn came */
    double latest;  /* the largest of any share */
};

/* Returns -1 when memory is short. */
int share_queue_init(struct share_queue *queue, int32_t num_shares);
size_t share_queue_bytes(int32_t num_shares);       /* what it allocates */
void share_queue_finish(struct share_queue *queue); /* accepts a zeroed one */

/* Adds a group that has never been admitted. */
void share_queue_add(struct share_queue *queue, struct sequence_group *group);
/* Adds one that was preempted. */
void share_queue_return(struct share_queue *queue, struct sequence_group *group);
/* Adds one that was preempted for another share: it loses its place, and waits for its share's next
 * turn. */
void share_queue_yield(struct share_queue *queue, struct sequence_group *group);
/* Removes a group that ends while it waits. */
void share_queue_remove(struct share_queue *queue, struct sequence_group *group);
/* Removes a group that is admitted, and gives it a place if it has none; it is expected to compute
 * num_pending tokens before the first one it samples, and num_outputs outputs. */
void share_queue_admit(struct share_queue *queue, struct sequence_group *group, int32_t num_pending,
                       int32_t num_outputs);

/* Notes that an admitted group runs no longer, before it waits again or ends. */
void share_queue_stop(struct share_queue *queue, const struct sequence_group *group);

/* Returns the first group in order that is not stalled, or NULL. */
struct sequence_group *share_queue_first(const struct share_queue *queue);
/* Returns the first group that is not stalled of those shares that run nothing, if its share was
 * served less than that of `first`; NULL: there is none. */
struct sequence_group *share_queue_first_idle(const struct share_queue *queue,
                                              const struct sequence_group *first);
/* Returns the next waiting group, in any order; NULL after the last. The first of all for NULL. */
struct sequence_group *share_queue_next(const struct share_queue *queue,
                                        const struct sequence_group *group);
/* Returns whether the running group's share would be next if it waited together with `next`, which
 * is of another share. */
bool share_queue_is_due(const struct share_queue *queue, const struct sequence_group *group,
                        const struct sequence_group *next);

/* Counts tokens that were computed for the group for the first time. */
void share_queue_charge(struct share_queue *queue, struct sequence_group *group,
                        int32_t num_tokens);
/* Notes how long the output of one of its sequences was. */
void share_queue_note_output(struct share_queue *queue, const struct sequence_group *group,
                             int32_t num_tokens);
/* Gives back what the group, which ended, had reserved. */
void share_queue_settle(struct share_queue *queue, struct sequence_group *group);

/* Inserts an admitted group among the running ones; those of its share exchange places with it as
 * their priorities say. */
void share_queue_insert_running(struct group_list *running, struct sequence_group *group);

#endif
