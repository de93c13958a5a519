/* Private to engine/grammar/: what tokens are made of, so that masks of strings and other long runs
 * of characters are cheap.
 *
 * The tail of a token is what is behind a node of the vocabulary's tree. Where all tails behind a
 * node are of whole characters, their kinds (character_kinds.h) and their greatest length say
 * whether a set takes them all (open_runs.h); the walk passes such a node's subtree. Of plain
 * tokens, texts of a JSON string without escapes, there are masks by their length. */
#ifndef QUIRE_ENGINE_GRAMMAR_TOKEN_TAILS_H
#define QUIRE_ENGINE_GRAMMAR_TOKEN_TAILS_H

#include "engine/grammar/machine/grammar_vocabulary.h"

/* Fills tail_length of all nodes and tail_kinds; what else the tree has is there. */
void token_tails_mark(struct vocabulary_tree *tree);
/* Returns the characters of a plain token; 0 of others. */
int token_tails_plain_length(struct text piece);

#endif
