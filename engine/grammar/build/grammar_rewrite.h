/* Private to engine/grammar/: rewrites a grammar under construction so that a machine that reads
 * from left to right can run it: no repetition of what may be empty, no left recursion. The texts
 * that match stay the same. */
#ifndef QUIRE_ENGINE_GRAMMAR_REWRITE_H
#define QUIRE_ENGINE_GRAMMAR_REWRITE_H

#include "engine/grammar/build/grammar_nodes.h"

/* Rewrites what is below *root, which may become another node; nothing where nothing need be. On
 * failure -1, and the builder has failed. */
int grammar_rewrite(struct grammar_builder *builder, grammar_node *root);
/* Finds the nodes that have a text: out[id] is 1, or -1 where there is none, as of a rule that
 * always contains itself. All rules are defined. On failure -1, and the builder has failed. */
int grammar_find_texts(struct grammar_builder *builder, int8_t *out);

#endif
