/* Private to engine/grammar/: runs a grammar's program on bytes, all parse states at once, and
 * remembers every step it has made (a lazily built deterministic automaton), shared by the
 * grammar's states. Engine thread only, or the thread that runs a job. */
#ifndef QUIRE_ENGINE_GRAMMAR_MACHINE_H
#define QUIRE_ENGINE_GRAMMAR_MACHINE_H

#include "engine/grammar/machine/grammar_program.h"
#include "engine/grammar/machine/object_names.h"
#include "engine/grammar/machine/parse_store.h"

#include <stdatomic.h>

/* A sequence's place: a set of parse states. The machine knows all of them and renames their sets
 * when it sweeps. */
struct grammar_state {
    struct grammar *grammar;
    const struct grammar_vocabulary *vocabulary;
    struct grammar_state *next, *previous; /* of the machine's users */
    int32_t set;
    struct object_names names;
    int32_t moved_set;   /* while the machine sweeps */
    bool may_end;        /* the mask, which is known, has the end tokens */
    bool wants_mask;     /* a job is to find it */
    bool has_failed;     /* memory was short for that */
    uint32_t *mask;      /* that a job found; NULL: none. Sweeping does not lose it */
    atomic_bool is_dead; /* destroyed while a job had the machine, which frees it then */
};

/* The search for a mask: a walk through the vocabulary's tree, which can be interrupted anywhere.
 * The mask that is found is the same wherever that was; whether one is found may depend on it,
 * where memory is short or the cost is bounded. */
struct mask_walk {
    struct grammar_state *state; /* whose mask; NULL: none is searched */
    uint32_t *mask;              /* the tokens found so far */
    const struct vocabulary_tree *tree;
    int32_t node;       /* of the tree: the next one */
    int32_t *path;      /* [longest token + 1] the sets of the bytes before it: [0..its depth] */
    int64_t work;       /* parse states followed for it */
    int64_t cost;       /* so far */
    int32_t num_tokens; /* in it, so far */
};

struct parse_key {
    struct parse_state state;
    uint32_t round; /* of which it was seen last */
};

struct grammar_machine {
    const struct grammar *grammar;
    const struct grammar_vocabulary *vocabulary; /* of the masks */
    struct parse_store store;
    size_t max_bytes;            /* the store is swept when it has more */
    struct grammar_state *users; /* all that stand on a set of the store */
    int32_t at;                  /* the set that a step leaves */
    struct mask_walk walk;
    /* Of the last mask that was found, walking, or that a longer walk did not find. */
    int64_t last_cost;
    int32_t num_wanted;  /* masks that states want */
    bool is_lent;        /* to a job. Engine thread; the only member that it may then read */
    int64_t work;        /* parse states followed; counts on */
    uint32_t num_sweeps; /* after which sets have other ids; counts on */
    /* Holds the step under way. */
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

/* Says in the grammar how large the machine is. */
void grammar_machine_report(struct grammar *grammar);

/* Returns the set at the start of a text. This and the next two return -1 when memory is short. */
int32_t grammar_machine_start(struct grammar_machine *machine);
/* Returns where `byte` leads from the set. May drop sets that are neither a state's nor the walk's;
 * those change their ids. */
int32_t grammar_machine_step(struct grammar_machine *machine, int32_t set, uint8_t byte);
/* Returns the set that the token leads to by the set's OP_TOKEN ops; PARSE_SET_EMPTY: none of them
 * names it. May drop sets like a step. */
int32_t grammar_machine_step_token(struct grammar_machine *machine, int32_t set, int32_t token);

/* --- mask_walk.c ---
 *
 * Finds the mask of a state by walking the prefix tree of the vocabulary with the grammar's
 * machine: a byte that leads nowhere cuts off its whole subtree. A walk can stop anywhere and go on
 * later; the mask is kept with the set of parse states it was found for, and found again by every
 * state that comes to the same set. Whoever has the machine. */

/* Begins a walk for the state, while its machine has none. Returns -1 when memory is short. */
int mask_walk_begin(struct grammar_state *state);
/* Walks on, and takes what that cost from *budget, until there is nothing left of it. Returns 0
 * when the mask is with the state's set, 1 when it is not found yet, -1 when memory is short; in
 * the first case and the last the walk is over. */
int mask_walk_run(struct grammar_machine *machine, int64_t *budget);
/* Ends the machine's walk, if it has one. */
void mask_walk_drop(struct grammar_machine *machine);

#endif
