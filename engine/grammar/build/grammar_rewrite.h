/* Private to engine/grammar/: rewrites a grammar under construction so that a left-to-right machine
 * can run it: without repetition of items that may be empty, and without left recursion. The set of
 * matching texts does not change. */
#ifndef QUIRE_ENGINE_GRAMMAR_BUILD_GRAMMAR_REWRITE_H
#define QUIRE_ENGINE_GRAMMAR_BUILD_GRAMMAR_REWRITE_H

#include "engine/grammar/build/grammar_nodes.h"

/* Rewrites what is below *root, if necessary; *root may become another node. Returns -1 on failure;
 * the builder has then failed. */
int grammar_rewrite(struct grammar_builder *builder, grammar_node *root);
/* Finds the nodes that match some text: out[id] is 1, or -1 if there is none, as with a rule that
 * always contains itself. All rules are defined. Returns -1 on failure; the builder has then
 * failed. */
int grammar_find_texts(struct grammar_builder *builder, int8_t *out);

/* --- rewrite_nodes.c: what the steps know of nodes, and the nodes that they make --- */

/* A grammar_node is GRAMMAR_FAILED once the builder has failed. */

#define REWRITE_UNKNOWN (-1)
#define REWRITE_NOTHING (-2) /* instead of a node: nothing matches */

struct rewrite {
    struct grammar_builder *builder;
    int8_t *emptiness;     /* [GRAMMAR_MAX_NODES] 0: not known; 1: may be empty; -1: never */
    grammar_node *plain;   /* [GRAMMAR_MAX_NODES] -1: not known */
    grammar_node *filled;  /* [GRAMMAR_MAX_NODES] without the empty text; -1: not known */
    bool *is_reachable;    /* [GRAMMAR_MAX_NODES] */
    grammar_node *pending; /* [GRAMMAR_MAX_NODES] */
    int depth;
};

/* Returns the node's items and their number; a rule's only item is its body. */
const grammar_node *rewrite_items(const struct rewrite *r, grammar_node id, int32_t *out_count);
bool rewrite_may_be_empty(struct rewrite *r, grammar_node id);
/* Returns whether the node matches the empty text regardless of its items. */
bool rewrite_is_empty_by_itself(const struct node *node);
/* Returns a node that matches the same texts, without repetitions of items that may be empty. */
grammar_node rewrite_plain(struct rewrite *r, grammar_node id);
/* Returns a node that matches the same texts except the empty one; REWRITE_NOTHING if that is the
 * only one. */
grammar_node rewrite_filled(struct rewrite *r, grammar_node id);
/* Returns the n-th node that a text of this node may begin with; -1 after the last. */
grammar_node rewrite_left_item(struct rewrite *r, grammar_node id, int32_t n);
/* Returns a node that matches nothing. */
grammar_node rewrite_never(struct rewrite *r);
/* Return an alternative of the items, and first followed by second; `second` may be
 * REWRITE_NOTHING: then nothing follows. */
grammar_node rewrite_choice(struct rewrite *r, const grammar_node *items, int32_t count);
grammar_node rewrite_pair(struct rewrite *r, grammar_node first, grammar_node second);

/* --- left_recursion.c: rules whose bodies begin with themselves, or with each other --- */

/* Groups the nodes that begin with each other: components[id] is equal within a group, and -1 for a
 * node that does not begin with itself. Returns the number of groups, -1 when memory is short. */
int32_t left_recursion_find(struct rewrite *r, int32_t *components);
/* Rewrites the rules of all components, none of which may be empty. */
int left_recursion_remove(struct rewrite *r, const int32_t *components, int32_t num_components);

#endif
