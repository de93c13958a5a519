/* Private to engine/grammar/: the grammar under construction, as the front ends wrote it. */
#ifndef QUIRE_ENGINE_GRAMMAR_BUILD_GRAMMAR_NODES_H
#define QUIRE_ENGINE_GRAMMAR_BUILD_GRAMMAR_NODES_H

#include "engine/grammar/build/grammar_builder.h"

enum node_kind {
    NODE_LITERAL,      /* bytes[first..+count) */
    NODE_TOKEN,        /* first: the token */
    NODE_CHARACTERS,   /* ranges[first..+count) */
    NODE_SEQUENCE,     /* items[first..+count) */
    NODE_ALTERNATIVES, /* items[first..+count) */
    NODE_REPEAT,       /* items[first] */
    NODE_RULE,         /* first: the body's node, -1 until it is defined */
};

struct node {
    enum node_kind kind;
    bool negated;      /* NODE_CHARACTERS */
    bool opens_object; /* NODE_LITERAL: grammar_open_object's */
    int32_t first, count;
    int32_t min, max; /* NODE_REPEAT; max < 0: no end */
};

/* A node's items have smaller ids than the node itself; only a rule's body may have a larger
 * one. */
struct grammar_builder {
    enum error_code failure; /* ERROR_NONE as long as all is well */
    const char *reason;      /* static; of the failure */
    int64_t work_left;
    struct byte_buffer *ignored; /* grammar_builder_ignored's */
    struct node *nodes;
    char *bytes;
    grammar_node *items;
    struct character_range *ranges;
    int32_t num_nodes;
    size_t nodes_capacity;
    int32_t num_bytes;
    size_t bytes_capacity;
    int32_t num_items;
    size_t items_capacity;
    int32_t num_ranges;
    size_t ranges_capacity;
};

#endif
