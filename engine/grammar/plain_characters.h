/* Private to engine/grammar/: what makes masks of strings cheap. Plain are the characters that stand
 * in a JSON string as they are: all of Unicode but controls below U+0020, the quote and the
 * backslash. Where a grammar takes any of them, and any behind it, all tokens of nothing but plain
 * characters are allowed, and the walk passes whole subtrees of the vocabulary that have no others. */
#ifndef QUIRE_ENGINE_GRAMMAR_PLAIN_CHARACTERS_H
#define QUIRE_ENGINE_GRAMMAR_PLAIN_CHARACTERS_H

#include "engine/grammar/grammar_machine.h"
#include "engine/grammar/grammar_vocabulary.h"

/* Fills plain_tail of all nodes, whose other members are there. */
void plain_characters_mark(struct grammar_vocabulary *vocabulary);
/* Returns 1 when any `count` plain characters may follow in the set, each with all that follow;
 * 0 when that is not so, or not known; -1 when memory is short. Counts as the machine's work, and may
 * drop sets like a step. */
int plain_characters_follow(struct grammar_machine *machine, int32_t set, int count);

#endif
