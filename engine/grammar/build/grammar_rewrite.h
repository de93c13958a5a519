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

/* --- rewrite_nodes.c: what the steps know of nodes, and the nodes that they make --- */

/* A grammar_node is GRAMMAR_FAILED once the builder has failed. */

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

/* --- left_recursion.c: rules whose bodies begin with themselves, or with each other --- */

/* Groups the nodes that begin with each other: components[id] is the same for those that do, and -1
 * for a node that does not begin with itself. Returns how many there are; -1 when memory is
 * short. */
int32_t left_recursion_find(struct rewrite *r, int32_t *components);
/* Rewrites the rules of all components, none of which may be empty. */
int left_recursion_remove(struct rewrite *r, const int32_t *components, int32_t num_components);

#endif
