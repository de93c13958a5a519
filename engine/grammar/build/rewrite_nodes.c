/* Nodes are recreated if something below them changed; rules keep theirs. */
#include "engine/grammar/build/grammar_rewrite.h"

#include <stdlib.h>

#define MAX_DEPTH 1024 /* nodes within nodes, which are rewritten by recursion */
#define UNKNOWN REWRITE_UNKNOWN

const grammar_node *rewrite_items(const struct rewrite *r, grammar_node id, int32_t *out_count) {
    const struct node *node = &r->builder->nodes[id];
    bool has_items =
        node->kind == NODE_SEQUENCE || node->kind == NODE_ALTERNATIVES || node->kind == NODE_REPEAT;
    if (node->kind == NODE_RULE) {
        *out_count = node->first >= 0;
        return &node->first;
    }
    *out_count = has_items ? node->count : 0;
    return *out_count > 0 ? r->builder->items + node->first : NULL;
}

/* --- What may be empty --- */

bool rewrite_is_empty_by_itself(const struct node *node) {
    switch (node->kind) {
    case NODE_LITERAL:
    case NODE_SEQUENCE:
        return node->count == 0;
    case NODE_REPEAT:
        return node->min == 0;
    default:
        return false;
    }
}

static bool all_may_be_empty(struct rewrite *r, grammar_node id) {
    int32_t count;
    rewrite_items(r, id, &count);
    for (int32_t i = 0; i < count; i++)
        if (!rewrite_may_be_empty(r, rewrite_items(r, id, &count)[i]))
            return false;
    return true;
}

static bool any_may_be_empty(struct rewrite *r, grammar_node id) {
    int32_t count;
    rewrite_items(r, id, &count);
    for (int32_t i = 0; i < count; i++)
        if (rewrite_may_be_empty(r, rewrite_items(r, id, &count)[i]))
            return true;
    return false;
}

/* Nodes that were made since then are looked at; rules are known. */
bool rewrite_may_be_empty(struct rewrite *r, grammar_node id) {
    if (r->emptiness[id] == 0) {
        const struct node *node = &r->builder->nodes[id];
        bool is_empty =
            rewrite_is_empty_by_itself(node) ||
            (node->kind == NODE_SEQUENCE ? all_may_be_empty(r, id)
                                         : node->kind != NODE_RULE && any_may_be_empty(r, id));
        r->emptiness[id] = is_empty ? 1 : -1;
    }
    return r->emptiness[id] > 0;
}

/* --- Nodes --- */

static grammar_node empty(struct rewrite *r) {
    return grammar_literal(r->builder, NULL, 0);
}

grammar_node rewrite_choice(struct rewrite *r, const grammar_node *items, int32_t count) {
    if (count == 0)
        return REWRITE_NOTHING;
    return count == 1 ? items[0] : grammar_alternatives(r->builder, items, count);
}

grammar_node rewrite_pair(struct rewrite *r, grammar_node first, grammar_node second) {
    grammar_node items[] = {first, second};
    return second == REWRITE_NOTHING ? first : grammar_sequence(r->builder, items, 2);
}

grammar_node rewrite_never(struct rewrite *r) {
    grammar_node rule = grammar_rule(r->builder);
    grammar_define(r->builder, rule, rewrite_pair(r, grammar_literal(r->builder, "x", 1), rule));
    return rule;
}

/* Returns the list with its items rewritten; itself where none changes. */
static grammar_node plain_list(struct rewrite *r, grammar_node id) {
    struct node node = r->builder->nodes[id];
    grammar_node *items = malloc(((size_t)node.count + 1) * sizeof(*items));
    bool changes = false;
    if (items == NULL)
        return grammar_builder_fail(r->builder, ERROR_MEMORY, "memory is short");
    for (int32_t i = 0; i < node.count; i++) {
        grammar_node item = r->builder->items[node.first + i];
        items[i] = rewrite_plain(r, item);
        changes |= items[i] != item;
    }
    grammar_node made = !changes ? id
                        : node.kind == NODE_SEQUENCE
                            ? grammar_sequence(r->builder, items, node.count)
                            : grammar_alternatives(r->builder, items, node.count);
    free(items);
    return made;
}

static grammar_node plain_repeat(struct rewrite *r, grammar_node id) {
    struct node node = r->builder->nodes[id];
    grammar_node item = r->builder->items[node.first];
    if (node.max == 0)
        return id;
    if (!rewrite_may_be_empty(r, item)) {
        grammar_node made = rewrite_plain(r, item);
        return made == item ? id : grammar_repeat(r->builder, made, node.min, node.max);
    }
    grammar_node filled = rewrite_filled(r, item);
    return filled == REWRITE_NOTHING ? empty(r) : grammar_repeat(r->builder, filled, 0, node.max);
}

/* A rule itself is never empty any more. */
static grammar_node make_plain(struct rewrite *r, grammar_node id) {
    switch (r->builder->nodes[id].kind) {
    case NODE_SEQUENCE:
    case NODE_ALTERNATIVES:
        return plain_list(r, id);
    case NODE_REPEAT:
        return plain_repeat(r, id);
    case NODE_RULE:
        return rewrite_may_be_empty(r, id) ? grammar_repeat(r->builder, id, 0, 1) : id;
    default:
        return id;
    }
}

static bool enter(struct rewrite *r) {
    if (r->builder->failure == ERROR_NONE && r->depth == MAX_DEPTH)
        grammar_builder_fail(r->builder, ERROR_SYNTAX, "the grammar is nested too deep");
    return r->builder->failure == ERROR_NONE;
}

/* Returns a node with the same texts. */
grammar_node rewrite_plain(struct rewrite *r, grammar_node id) {
    if (r->plain[id] != UNKNOWN)
        return r->plain[id];
    if (!enter(r))
        return GRAMMAR_FAILED;
    r->depth++;
    grammar_node made = make_plain(r, id);
    r->depth--;
    return r->plain[id] = made;
}

/* All items may be empty: the first that is not, and anything after it. */
static grammar_node filled_sequence(struct rewrite *r, grammar_node id) {
    struct node node = r->builder->nodes[id];
    grammar_node *choices = malloc(((size_t)node.count + 1) * sizeof(*choices));
    grammar_node rest = REWRITE_NOTHING;
    int32_t count = 0;
    if (choices == NULL)
        return grammar_builder_fail(r->builder, ERROR_MEMORY, "memory is short");
    for (int32_t i = node.count - 1; i >= 0; i--) {
        grammar_node item = r->builder->items[node.first + i];
        grammar_node first = rewrite_filled(r, item);
        if (first != REWRITE_NOTHING)
            choices[node.count - ++count] = rewrite_pair(r, first, rest);
        rest = rewrite_pair(r, rewrite_plain(r, item), rest);
    }
    grammar_node made = rewrite_choice(r, choices + node.count - count, count);
    free(choices);
    return made;
}

static grammar_node filled_alternatives(struct rewrite *r, grammar_node id) {
    struct node node = r->builder->nodes[id];
    grammar_node *choices = malloc(((size_t)node.count + 1) * sizeof(*choices));
    int32_t count = 0;
    if (choices == NULL)
        return grammar_builder_fail(r->builder, ERROR_MEMORY, "memory is short");
    for (int32_t i = 0; i < node.count; i++) {
        grammar_node choice = rewrite_filled(r, r->builder->items[node.first + i]);
        if (choice != REWRITE_NOTHING)
            choices[count++] = choice;
    }
    grammar_node made = rewrite_choice(r, choices, count);
    free(choices);
    return made;
}

static grammar_node filled_repeat(struct rewrite *r, grammar_node id) {
    struct node node = r->builder->nodes[id];
    grammar_node item = r->builder->items[node.first];
    if (node.max == 0)
        return REWRITE_NOTHING;
    grammar_node filled = rewrite_filled(r, item);
    return filled == REWRITE_NOTHING ? filled : grammar_repeat(r->builder, filled, 1, node.max);
}

static grammar_node make_filled(struct rewrite *r, grammar_node id) {
    if (!rewrite_may_be_empty(r, id))
        return rewrite_plain(r, id);
    switch (r->builder->nodes[id].kind) {
    case NODE_SEQUENCE:
        return filled_sequence(r, id);
    case NODE_ALTERNATIVES:
        return filled_alternatives(r, id);
    case NODE_REPEAT:
        return filled_repeat(r, id);
    case NODE_RULE:
        return id;
    default:
        return REWRITE_NOTHING;
    }
}

grammar_node rewrite_filled(struct rewrite *r, grammar_node id) {
    if (r->filled[id] != UNKNOWN)
        return r->filled[id];
    if (!enter(r))
        return GRAMMAR_FAILED;
    r->depth++;
    grammar_node made = make_filled(r, id);
    r->depth--;
    return r->filled[id] = made;
}

/* --- What a text begins with --- */

grammar_node rewrite_left_item(struct rewrite *r, grammar_node id, int32_t n) {
    const struct node *node = &r->builder->nodes[id];
    int32_t count;
    const grammar_node *items = rewrite_items(r, id, &count);
    if (n >= count || (node->kind == NODE_REPEAT && node->max == 0) ||
        (node->kind == NODE_SEQUENCE && n > 0 && !rewrite_may_be_empty(r, items[n - 1])))
        return -1;
    return items[n];
}
