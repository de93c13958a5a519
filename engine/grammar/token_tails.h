/* Private to engine/grammar/: what makes masks of strings and other long runs of characters cheap.
 *
 * Characters are of kinds: lower case letters, upper case letters, digits (of ASCII),
 * some groups of those beyond ASCII, and every other one of ASCII by itself. The tail of a token is what is behind a node of the
 * vocabulary's tree. Where all tails behind a node have no other kinds of characters than those that the
 * grammar takes in any order, and are no longer than it takes them, every token there is allowed, and the
 * walk passes the node's subtree. */
#ifndef QUIRE_ENGINE_GRAMMAR_TOKEN_TAILS_H
#define QUIRE_ENGINE_GRAMMAR_TOKEN_TAILS_H

#include "engine/grammar/grammar_machine.h"
#include "engine/grammar/grammar_vocabulary.h"

/* Fills tail_length of all nodes and tail_kinds; what else the tree has is there. */
void token_tails_mark(struct vocabulary_tree *tree);
bool token_tails_is_plain(struct text piece);
/* Returns whether any plain tokens may follow in the set, with values as below. */
int token_tails_plain_may_follow(struct grammar_machine *machine, int32_t set);
/* Returns 1 when any `count` characters of the kinds (bits) may follow in the set; 0 when that is not so,
 * or would take long to find out; -1 when memory is short. Counts as the machine's work, and may drop
 * sets like a step. */
int token_tails_may_follow(struct grammar_machine *machine, int32_t set, uint64_t kinds, int count);

#endif
