/* Private to engine/grammar/: a state stands on a set of readings of its grammar's machine, which
 * knows all states and renames their sets when it sweeps. */
#ifndef QUIRE_ENGINE_GRAMMAR_STATE_H
#define QUIRE_ENGINE_GRAMMAR_STATE_H

#include "engine/grammar/grammar.h"

struct grammar_state {
    struct grammar *grammar;
    const struct grammar_vocabulary *vocabulary;
    struct grammar_state *next, *previous; /* of the machine's states */
    int32_t set;
    int32_t moved_set; /* while the machine sweeps */
};

#endif
