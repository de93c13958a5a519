/* Private to engine/grammar/: what the steps of grammar_rewrite.h know of nodes, and the nodes that
 * they make. A grammar_node is GRAMMAR_FAILED once the builder has failed. */
#ifndef QUIRE_ENGINE_GRAMMAR_REWRITE_NODES_H
#define QUIRE_ENGINE_GRAMMAR_REWRITE_NODES_H

#include "engine/grammar/build/grammar_nodes.h"

#define REWRITE_UNKNOWN (-1)
#define REWRITE_NOTHING (-2) /* instead of a node: of what no text is */

struct rewrite {
    struct grammar_builder *builder;
    int8_t *emptiness;     /* [GRAMMAR_MAX_NODES] 0: not known; 1: may be empty; -1: never */
    grammar_node *plain;   /* [GRAMMAR_MAX_NODES] -1: not known */
    grammar_node *filled;  /* [GRAMMAR_MAX_NODES] without the empty text; -1: not known */
    bool *is_reachable;    /* [GRAMMAR_MAX_NODES] */
    grammar_node *pending; /* [GRAMMAR_MAX_NODES] */
    int depth;
};

/* Returns the node's items and how many there are; a rule's is its body. */
const grammar_node *rewrite_items(const struct rewrite *r, grammar_node id, int32_t *out_count);
bool rewrite_may_be_empty(struct rewrite *r, grammar_node id);
/* Returns whether the empty text is one of the node's, whatever its items are. */
bool rewrite_is_empty_by_itself(const struct node *node);
/* Returns a node with the same texts, in which no repetition is one of what may be empty. */
grammar_node rewrite_plain(struct rewrite *r, grammar_node id);
/* Returns a node with the same texts but the empty one; REWRITE_NOTHING where that is the only
 * one. */
grammar_node rewrite_filled(struct rewrite *r, grammar_node id);
/* Returns the n-th node that a text of this one may begin with; -1: there are no more. */
grammar_node rewrite_left_item(struct rewrite *r, grammar_node id, int32_t n);
/* Returns a node without any text. */
grammar_node rewrite_never(struct rewrite *r);
/* Return an alternative of the items, and first followed by second; the latter may be
 * REWRITE_NOTHING, which is nothing to follow. */
grammar_node rewrite_choice(struct rewrite *r, const grammar_node *items, int32_t count);
grammar_node rewrite_pair(struct rewrite *r, grammar_node first, grammar_node second);

#endif
