/* Private to engine/grammar/: runs a grammar's program on bytes, all parse states at once, and
 * remembers every step it has made (a lazily built deterministic automaton), shared by the
 * grammar's states. Engine thread only. */
#ifndef QUIRE_ENGINE_GRAMMAR_MACHINE_H
#define QUIRE_ENGINE_GRAMMAR_MACHINE_H

#include "engine/grammar/grammar_program.h"
#include "engine/grammar/parse_store.h"

/* A sequence's place: a set of parse states. The machine knows all of them and renames their sets
 * when it sweeps. */
struct grammar_state {
    struct grammar *grammar;
    const struct grammar_vocabulary *vocabulary;
    struct grammar_state *next, *previous; /* of the machine's users */
    int32_t set;
    int32_t moved_set; /* while the machine sweeps */
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
    int32_t *path;               /* [longest token + 1] sets of a walk over a token's bytes */
    int64_t work;                /* parse states followed; counts on */
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

/* Returns the set at the start of a text. This and the next two return -1 when memory is short. */
int32_t grammar_machine_start(struct grammar_machine *machine);
/* Sets path[depth + 1] to where `byte` leads from path[depth], and returns it. May drop sets that
 * are neither a state's nor in path[0..depth]; those change their ids. */
int32_t grammar_machine_step(struct grammar_machine *machine, int depth, uint8_t byte);
/* Returns the set that the token leads to by the set's OP_TOKEN ops; PARSE_SET_EMPTY: none of them
 * names it. Sets path[0] to the set, and may drop others like a step. */
int32_t grammar_machine_step_token(struct grammar_machine *machine, int32_t set, int32_t token);

#endif
