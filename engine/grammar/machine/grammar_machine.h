/* Private to engine/grammar/: runs a grammar's program on bytes, all parse states at once, and
 * remembers every transition (a lazily built deterministic automaton). The grammar's states share
 * it. Engine thread only, or the thread that runs a job. */
#ifndef QUIRE_ENGINE_GRAMMAR_MACHINE_GRAMMAR_MACHINE_H
#define QUIRE_ENGINE_GRAMMAR_MACHINE_GRAMMAR_MACHINE_H

#include "engine/grammar/machine/grammar_program.h"
#include "engine/grammar/machine/object_names.h"
#include "engine/grammar/machine/parse_store.h"

#include <stdatomic.h>

/* The parse state of a sequence: a set of parse states. The machine knows all its grammar_states
 * and renames their sets when it sweeps. */
struct grammar_state {
    struct grammar *grammar;
    const struct grammar_vocabulary *vocabulary;
    struct grammar_state *next, *previous; /* links of the machine's list of users */
    int32_t set;
    struct object_names names;
    int32_t moved_set;   /* while the machine sweeps */
    bool may_end;        /* the mask is known and contains the end tokens */
    bool wants_mask;     /* a job must find the mask */
    bool has_failed;     /* memory was short for finding it */
    uint32_t *mask;      /* found by a job; NULL: none. Survives sweeping */
    atomic_bool is_dead; /* destroyed while a job had the machine, which frees it afterwards */
};

/* The search for a mask: a walk through the vocabulary's tree, which can be interrupted anywhere.
 * The mask does not depend on where it was interrupted; whether one is found may, if memory is
 * short or the cost is bounded. */
struct mask_walk {
    struct grammar_state *state; /* whose mask; NULL: no search */
    uint32_t *mask;              /* the tokens found so far */
    const struct vocabulary_tree *tree;
    int32_t node;       /* next node of the tree */
    int32_t *path;      /* [longest token + 1] the sets after the bytes before it: [0..its depth] */
    int64_t work;       /* parse states followed for this walk */
    int64_t cost;       /* so far */
    int32_t num_tokens; /* in the mask so far */
};

struct parse_key {
    struct parse_state state;
    uint32_t round; /* the round in which it was last seen */
};

struct grammar_machine {
    const struct grammar *grammar;
    const struct grammar_vocabulary *vocabulary; /* vocabulary of the masks */
    struct parse_store store;
    size_t max_bytes;            /* the store is swept when it has more */
    struct grammar_state *users; /* all states that refer to a set of the store */
    int32_t at;                  /* the set that the current step starts from */
    struct mask_walk walk;
    /* Cost of the last mask that a walk found, or of a costlier walk that was given up since. */
    int64_t last_cost;
    int32_t num_wanted;  /* masks that states want */
    bool is_lent;        /* lent to a job. Engine thread, which may then read no other member */
    int64_t work;        /* parse states followed since creation */
    uint32_t num_sweeps; /* since creation; each gives sets new ids */
    /* The current step. */
    struct parse_state *pending; /* a stack */
    int32_t num_pending;
    size_t pending_capacity;
    struct parse_key *seen; /* a hash table */
    int32_t num_seen, num_seen_slots;
    uint32_t round;
    struct parse_state found[GRAMMAR_MAX_PARSE_STATES];
    int32_t num_found;
    bool is_complete;
    bool has_failed; /* memory was short */
};

/* Returns NULL when memory is short. */
struct grammar_machine *grammar_machine_create(const struct grammar *grammar,
                                               const struct grammar_vocabulary *vocabulary);
void grammar_machine_destroy(struct grammar_machine *machine); /* accepts NULL */

/* Stores the machine's size in the grammar. */
void grammar_machine_report(struct grammar *grammar);

/* Returns the set at the start of a text. This function and the next two return -1 when memory is
 * short. */
int32_t grammar_machine_start(struct grammar_machine *machine);
/* Returns the set that `byte` leads to. May drop sets that belong neither to a state nor to the
 * walk; the ids of those that remain change. */
int32_t grammar_machine_step(struct grammar_machine *machine, int32_t set, uint8_t byte);
/* Returns the set that the token leads to by the set's OP_TOKEN ops; PARSE_SET_EMPTY if none of
 * them names it. May drop sets, like grammar_machine_step. */
int32_t grammar_machine_step_token(struct grammar_machine *machine, int32_t set, int32_t token);

/* --- mask_walk.c ---
 *
 * Finds the mask of a state by walking the prefix tree of the vocabulary with the grammar's
 * machine: a byte that leads nowhere cuts off its whole subtree. A walk can stop anywhere and
 * continue later. The mask is stored with the set of parse states it was found for, so every state
 * that reaches the same set finds it again. Called by whoever has the machine. */

/* Begins a walk for the state, while its machine has none. Returns -1 when memory is short. */
int mask_walk_begin(struct grammar_state *state);
/* Continues the walk until *budget is used up, and subtracts the cost from it. Returns 0 when the
 * mask is stored with the state's set, 1 when it is not found yet, -1 when memory is short. After 0
 * and -1 the walk is over. */
int mask_walk_run(struct grammar_machine *machine, int64_t *budget);
/* Ends the machine's walk, if it has one. */
void mask_walk_drop(struct grammar_machine *machine);

#endif
