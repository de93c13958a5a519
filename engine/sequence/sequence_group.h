/* A request inside the engine: its sequences, which share their prompt's blocks and are admitted,
 * preempted and swapped in together.
 *
 * The LEADER is the first sequence that has not finished. Only it computes the prompt. Then as many
 * others fork from it as may run; the rest waits until one of them ends. After preemption by
 * recomputation the same happens again, with all the tokens they have in common.
 *
 * Engine thread only. */
#ifndef QUIRE_ENGINE_SEQUENCE_SEQUENCE_GROUP_H
#define QUIRE_ENGINE_SEQUENCE_SEQUENCE_GROUP_H

#include "config/serving_limits.h"
#include "engine/sequence/beam_search.h"
#include "engine/sequence/sequence.h"

enum group_status {
    GROUP_NEW,     /* not in the scheduler */
    GROUP_WAITING, /* no sequence holds a block of the device */
    GROUP_RUNNING, /* has running slots */
    GROUP_ENDED,   /* every sequence has finished */
};

/* What a request hands over to another server, or gets from one, by a store that both have.
 * The core writes it. */
struct handover {
    int32_t num_tokens; /* of the prompt, in full blocks that are to be in the store; 0: none */
    bool is_awaited;    /* they are not there yet: the tokens after them are not computed */
    bool is_storing;    /* all of them are computed, as of before the last plan */
    int32_t num_stored_tokens; /* of num_tokens */
    int32_t num_offers;        /* times that the store was offered them */
    int64_t progress_ns;       /* when it was offered them first, or has got some */
    int64_t offer_ns;          /* when it is offered them again */
    int32_t num_expected;      /* tokens that another server has stored, in full blocks; 0: none */
};

/* Everything is initialised by sequence_group.c; the comments below say who writes it later. */
struct sequence_group {
    /* Set once, by sequence_group.c. */
    struct request *request;    /* one reference */
    struct sequence *sequences; /* [num_sequences] */
    int32_t num_sequences;      /* choices, or slots of the beam search */
    struct beam_search *beams;  /* NULL: each sequence is a choice */
    int32_t num_candidates;     /* logprobs that a row of a beam must bring */
    int32_t *end_tokens;        /* of the beams; owned */

    /* Written by sequence_group.c. Only sequences that may run have memory for a block table: the
     * first num_tables that have not finished. */
    int32_t num_unfinished;
    int32_t first_unfinished; /* all before it have finished */
    int32_t num_tables;
    int32_t first_without_table; /* none from here on ever had one */

    /* Written by the scheduler. */
    enum group_status status;
    int32_t max_running;        /* sequences that may run at once */
    double place;               /* among groups of other shares (schedule/share_queue.h) */
    int64_t num_reserved;       /* tokens it is still expected to compute */
    int64_t num_served;         /* tokens that were computed for it, each once */
    int64_t num_served_before;  /* value of num_served when it was last admitted */
    bool is_swapped;            /* waits with its blocks in the host pool */
    bool swapped_in_this_step;  /* the one being planned */
    uint64_t preempted_in_plan; /* the number of the last such plan; 0: none */
    int32_t num_cached_tokens;  /* prompt tokens found and never computed */
    int32_t num_forking;        /* choices that fork when a step in flight is committed */
    struct sequence_group *list_previous, *list_next; /* in its group_list */

    /* Written by core/step_output.c. */
    int32_t num_scored; /* prompt tokens whose scores are in the stream (by choice 0) */

    struct handover handover;

    /* Written by core/engine_core.c. */
    int32_t num_open;      /* choices whose last event is not in the stream */
    int32_t num_in_flight; /* entries of steps in flight, which keep the group alive */
    bool started;          /* some sequence was scheduled once */
    bool is_suspect; /* the ranks were lost while they computed it (core/engine_core_restart.c) */
    bool stalled;    /* too much of the stream is unread: left out of the steps */
    int64_t stalled_since_ns;
    struct sequence_group *previous, *next; /* live groups, by arrival */
};

struct group_shape {
    const struct serving_limits *limits;
    struct block_key root; /* of the request's prefixes */
    struct block_adapter adapter;
    const int32_t *end_tokens; /* the model's, for beam search; [num_end_tokens] */
    int32_t num_end_tokens;
};

/* Takes its own reference. Returns NULL when memory is short. */
struct sequence_group *sequence_group_create(struct request *request,
                                             const struct group_shape *shape);
/* The sequences must hold no blocks. Accepts NULL. */
void sequence_group_destroy(struct sequence_group *group);

/* Allocates the block table of one more sequence that has none. Returns -1 when memory is short. */
int sequence_group_add_table(struct sequence_group *group);
/* Notes that the sequence's status became finished, its blocks released. The memory of its table
 * goes to the next one that has none. */
void sequence_group_note_finished(struct sequence_group *group, struct sequence *sequence);

/* Returns the number of choices of the request; the first sequences become these. */
int32_t sequence_group_num_choices(const struct sequence_group *group);
/* Returns NULL when every sequence has finished or is idle. */
struct sequence *sequence_group_leader(const struct sequence_group *group);
/* Returns the first sequence from that index on which has the status and is not idle, or NULL. */
struct sequence *sequence_group_find(const struct sequence_group *group, int32_t from,
                                     enum sequence_status status);
int32_t sequence_group_count(const struct sequence_group *group, enum sequence_status status);
/* Walks the first-token forks: returns the next sequence after this index, or from 0 on for -1,
 * that samples its first token from the same logits as the leader and forks from it in this step.
 * After ranks were lost, a sequence after it may already have tokens, and keeps its table. NULL
 * when there is none or no more may run. */
struct sequence *sequence_group_next_fork(const struct sequence_group *group, int32_t after);
/* Returns true while choice 0 has prompt tokens left to score. */
bool sequence_group_is_scoring(const struct sequence_group *group);

/* Returns whether the group is left out of the steps for a while: its reader does not keep up, or a
 * mask of its grammar is being found. */
bool sequence_group_is_held(const struct sequence_group *group);
/* Returns whether the sequence may take part in the step being planned: it runs, its group is not
 * held, and the plan does not depend on what a step in flight samples. It does depend on that for
 * beams, for a mean of hidden states, for drafts (which may be rejected), and when choices are
 * about to fork. */
bool sequence_group_can_run(const struct sequence *sequence);
/* Returns how many tokens at its start need not be computed when their keys and values are
 * found. */
int32_t sequence_group_reusable(const struct sequence *sequence);

/* Returns true if a is served before b: lower priority value, then arrival; those of different
 * shares by their places. A total order, as long as the places of a share are in its own. */
bool sequence_group_before(const struct sequence_group *a, const struct sequence_group *b);

/* Groups in that order. A zeroed struct is empty. */
struct group_list {
    struct sequence_group *first, *last;
    int32_t count;
};

/* Takes O(1) for a group that belongs at the end. */
void group_list_insert(struct group_list *list, struct sequence_group *group);
void group_list_remove(struct group_list *list, struct sequence_group *group);

#endif
