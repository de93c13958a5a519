/* Private to engine/grammar/: rules whose bodies begin with themselves, or with each other. */
#ifndef QUIRE_ENGINE_GRAMMAR_LEFT_RECURSION_H
#define QUIRE_ENGINE_GRAMMAR_LEFT_RECURSION_H

#include "engine/grammar/build/rewrite_nodes.h"

/* Groups the nodes that begin with each other: components[id] is the same for those that do, and -1
 * for a node that does not begin with itself. Returns how many there are; -1 when memory is
 * short. */
int32_t left_recursion_find(struct rewrite *r, int32_t *components);
/* Rewrites the rules of all components, none of which may be empty. */
int left_recursion_remove(struct rewrite *r, const int32_t *components, int32_t num_components);

#endif
