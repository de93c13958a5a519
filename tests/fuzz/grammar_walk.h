/* What the fuzz targets of grammars do with a grammar that was taken: a walk along tokens that its
 * masks allow. */
#ifndef QUIRE_TESTS_FUZZ_GRAMMAR_WALK_H
#define QUIRE_TESTS_FUZZ_GRAMMAR_WALK_H

#include "engine/grammar/machine/grammar.h"

/* Aborts, which is a finding, unless the condition holds. */
void fuzz_require(bool condition);
/* Takes up to num_tokens tokens, each the one of those allowed that the choice falls on, and
 * requires that there always is one, until nothing but the end can follow. */
void grammar_walk(struct grammar *grammar, unsigned choice, int num_tokens);

#endif
