/* A request inside the engine: its sequences, which share their prompt's blocks and are seated,
 * preempted and brought back together.
 *
 * The LEADER is the first sequence that has not finished. It alone computes the prompt; the others
 * then fork from it, as many as there are lanes for; the rest waits until a lane is free. After
 * preemption by recomputation it is the same again, with all the tokens they have in common.
 *
 * Engine thread only. */
#ifndef QUIRE_ENGINE_SEQUENCE_GROUP_H
#define QUIRE_ENGINE_SEQUENCE_GROUP_H

#include "config/serving_limits.h"
#include "engine/sequence/beam_search.h"
#include "engine/sequence/sequence.h"

enum group_status {
    GROUP_NEW,     /* not in the scheduler */
    GROUP_WAITING, /* no sequence holds a block of the device */
    GROUP_RUNNING, /* has seats */
    GROUP_ENDED,   /* every sequence has finished */
};

struct sequence_group {
    struct request *request;    /* one reference */
    struct sequence *sequences; /* [num_sequences] */
    int32_t num_sequences;      /* choices, or lanes of the beam search */
    int32_t num_unfinished;     /* of them */
    int32_t first_unfinished;   /* all before it have finished */
    int32_t max_running;        /* sequences that may run at once; set by the scheduler, which
                                   may raise it while the group runs */
    /* Only those that may run have memory for a block table: the first num_tables that have not
     * finished. */
    int32_t num_tables;
    int32_t first_without_table; /* none from here on ever had one */
    enum group_status status;    /* written by the scheduler */
    bool is_swapped;             /* waits with its blocks in host memory; likewise */
    bool swapped_in_this_step;   /* was swapped in for the step being planned; likewise */

    struct beam_search *beams; /* NULL: each sequence is a choice */
    int32_t num_candidates;    /* logprobs that a row of a beam must bring */
    int32_t *end_tokens;       /* of the beams; owned */

    int32_t num_open;          /* choices whose last event is not in the stream */
    int32_t num_scored;        /* prompt tokens whose scores are in the stream (by choice 0) */
    int32_t num_cached_tokens; /* prompt tokens that were found and never computed */
    bool started;              /* some sequence was scheduled once */
    bool stalled;              /* the stream is too far unread: left out of the steps */
    int64_t stalled_since_ns;

    struct sequence_group *previous, *next;           /* live groups, by arrival */
    struct sequence_group *list_previous, *list_next; /* in its group_list */
};

struct group_shape {
    const struct serving_limits *limits;
    struct block_key root;     /* of the request's prefixes */
    const int32_t *end_tokens; /* the model's, for beam search; [num_end_tokens] */
    int32_t num_end_tokens;
};

/* Takes its own reference. NULL when memory is short. */
struct sequence_group *sequence_group_create(struct request *request,
                                             const struct group_shape *shape);
/* No sequence may hold blocks any more. Accepts NULL. */
void sequence_group_destroy(struct sequence_group *group);

/* Memory for the block table of one more sequence that has none. Returns -1 when it is short. */
int sequence_group_add_table(struct sequence_group *group);
/* Of a sequence whose status has become finished, its blocks released: the memory of its table goes
 * to the next one that has none. */
void sequence_group_note_finished(struct sequence_group *group, struct sequence *sequence);

/* Choices of the request: those of the sequences that have an outlet. */
int32_t sequence_group_num_choices(const struct sequence_group *group);
/* NULL when every sequence has finished or is idle. */
struct sequence *sequence_group_leader(const struct sequence_group *group);
/* The first sequence from that index on which has the status and is not idle, or NULL. */
struct sequence *sequence_group_find(const struct sequence_group *group, int32_t from,
                                     enum sequence_status status);
int32_t sequence_group_count(const struct sequence_group *group, enum sequence_status status);
/* The next sequence after this index, or from 0 on for -1, that draws its first token from the same
 * logits as the leader: it forks from it in this step. NULL when there is none or no lane is left.
 */
struct sequence *sequence_group_next_fork(const struct sequence_group *group, int32_t after);
/* True while choice 0 has prompt tokens left to score. */
bool sequence_group_is_scoring(const struct sequence_group *group);

/* May take part in a step: it runs, and its group's reader keeps up. */
bool sequence_group_can_run(const struct sequence *sequence);
/* Tokens at its start that need not be computed when their keys and values are found. */
int32_t sequence_group_reusable(const struct sequence *sequence);

/* True if a is served before b: lower priority value, then arrival. A total order. */
bool sequence_group_before(const struct sequence_group *a, const struct sequence_group *b);

/* Groups in that order. A zeroed struct is empty. */
struct group_list {
    struct sequence_group *first, *last;
    int32_t count;
};

/* O(1) for one that belongs at the end. */
void group_list_insert(struct group_list *list, struct sequence_group *group);
void group_list_remove(struct group_list *list, struct sequence_group *group);

#endif
