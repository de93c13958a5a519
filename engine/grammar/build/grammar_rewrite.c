/* Every rule is made one that is never empty, and where a rule could be, its uses become optional.
 * Then a repetition of x that may be empty is one of x without the empty text, and a rule is
 * left-recursive exactly when its body begins with itself, with nothing that hides it. */
#include "engine/grammar/build/grammar_rewrite.h"

#include <stdlib.h>
#include <string.h>

/* --- What is reachable, and what may be empty --- */

static int find_reachable(struct rewrite *r, grammar_node root) {
    int32_t depth = 0;
    memset(r->is_reachable, 0, (size_t)r->builder->num_nodes * sizeof(*r->is_reachable));
    r->pending[depth++] = root;
    r->is_reachable[root] = true;
    while (depth > 0) {
        int32_t count;
        grammar_node id = r->pending[--depth];
        const grammar_node *items = rewrite_items(r, id, &count);
        if (r->builder->nodes[id].kind == NODE_RULE && count == 0)
            return grammar_builder_fail(r->builder, ERROR_SYNTAX,
                                        "a rule of the grammar is not defined");
        for (int32_t i = 0; i < count; i++) {
            if (r->is_reachable[items[i]])
                continue;
            r->is_reachable[items[i]] = true;
            r->pending[depth++] = items[i];
        }
    }
    return 0;
}

static bool has_text_by_itself(const struct node *node) {
    return node->kind == NODE_LITERAL || node->kind == NODE_TOKEN ||
           node->kind == NODE_CHARACTERS || (node->kind == NODE_REPEAT && node->min == 0) ||
           (node->kind == NODE_SEQUENCE && node->count == 0);
}

struct uses {
    int32_t *first;    /* [num_nodes + 1] into users */
    grammar_node *all; /* nodes that have the node as an item, once for each time */
    int32_t *missing;  /* [num_nodes] items that must be empty still before the node is */
};

/* Counting sort: each node's count, then its end, which filling turns into its start. */
static void index_uses(const struct rewrite *r, struct uses *uses) {
    int32_t num_nodes = r->builder->num_nodes, count;
    for (grammar_node id = 0; id < num_nodes; id++) {
        const grammar_node *items = rewrite_items(r, id, &count);
        uses->missing[id] = r->builder->nodes[id].kind == NODE_SEQUENCE ? count : 1;
        for (int32_t i = 0; i < count; i++)
            uses->first[items[i]]++;
    }
    for (grammar_node id = 0; id < num_nodes; id++)
        uses->first[id + 1] += uses->first[id];
    for (grammar_node id = num_nodes - 1; id >= 0; id--) {
        const grammar_node *items = rewrite_items(r, id, &count);
        for (int32_t i = count - 1; i >= 0; i--)
            uses->all[--uses->first[items[i]]] = id;
    }
}

/* Finds the nodes that have a property: by themselves, or since all items of a sequence or one of
 * another node have it. Sets found[id] to 1, or to -1. */
static void spread(const struct rewrite *r, struct uses *uses,
                   bool (*has_by_itself)(const struct node *node), int8_t *found) {
    int32_t num_nodes = r->builder->num_nodes, depth = 0;
    for (grammar_node id = 0; id < num_nodes; id++) {
        found[id] = has_by_itself(&r->builder->nodes[id]) ? 1 : -1;
        if (found[id] > 0)
            r->pending[depth++] = id;
    }
    while (depth > 0) {
        grammar_node id = r->pending[--depth];
        for (int32_t i = uses->first[id]; i < uses->first[id + 1]; i++) {
            grammar_node user = uses->all[i];
            if (found[user] > 0 || --uses->missing[user] > 0)
                continue;
            found[user] = 1;
            r->pending[depth++] = user;
        }
    }
}

static int find_property(const struct rewrite *r, bool (*has_by_itself)(const struct node *node),
                         int8_t *found) {
    size_t num_nodes = (size_t)r->builder->num_nodes;
    size_t num_uses = (size_t)r->builder->num_items + num_nodes;
    int32_t *memory = calloc(2 * num_nodes + 1 + num_uses, sizeof(*memory));
    if (memory == NULL)
        return grammar_builder_fail(r->builder, ERROR_MEMORY, "memory is short");
    struct uses uses = {memory, memory + 2 * num_nodes + 1, memory + num_nodes + 1};
    index_uses(r, &uses);
    spread(r, &uses, has_by_itself, found);
    free(memory);
    return 0;
}

int grammar_find_texts(struct grammar_builder *builder, int8_t *out) {
    struct rewrite r = {.builder = builder};
    r.pending = malloc(((size_t)builder->num_nodes + 1) * sizeof(*r.pending));
    int result = r.pending != NULL ? find_property(&r, has_text_by_itself, out)
                                   : grammar_builder_fail(builder, ERROR_MEMORY, "memory is short");
    free(r.pending);
    return result;
}

/* --- The whole --- */

static bool repeats_what_may_be_empty(struct rewrite *r) {
    for (grammar_node id = 0; id < r->builder->num_nodes; id++) {
        const struct node *node = &r->builder->nodes[id];
        bool repeats = node->kind == NODE_REPEAT && (node->max < 0 || node->max > 1);
        if (repeats && r->is_reachable[id] &&
            rewrite_may_be_empty(r, r->builder->items[node->first]))
            return true;
    }
    return false;
}

/* Gives every rule a body that is never empty; then a rule is not either. */
static void fill_rules(struct rewrite *r, grammar_node *root) {
    struct grammar_builder *builder = r->builder;
    int32_t num_rules = 0, num_nodes = builder->num_nodes;
    memset(r->plain, 0xff, GRAMMAR_MAX_NODES * sizeof(*r->plain)); /* REWRITE_UNKNOWN */
    memset(r->filled, 0xff, GRAMMAR_MAX_NODES * sizeof(*r->filled));
    *root = rewrite_plain(r, *root);
    for (grammar_node id = 0; id < num_nodes; id++)
        if (builder->nodes[id].kind == NODE_RULE && r->is_reachable[id])
            r->pending[num_rules++] = id;
    for (int32_t i = 0; i < num_rules; i++) {
        grammar_node rule = r->pending[i];
        grammar_node body = rewrite_filled(r, builder->nodes[rule].first);
        if (body == REWRITE_NOTHING)
            body = rewrite_never(r);
        if (builder->failure != ERROR_NONE)
            return;
        builder->nodes[rule].first = body;
    }
    for (int32_t i = 0; i < num_rules; i++)
        r->emptiness[r->pending[i]] = -1;
    for (grammar_node id = 0; id < builder->num_nodes; id++) {
        r->plain[id] = r->filled[id] = REWRITE_UNKNOWN;
        if (builder->nodes[id].kind != NODE_RULE)
            r->emptiness[id] = 0;
        rewrite_may_be_empty(r, id); /* its items first, which have smaller ids */
    }
}

static int rewrite(struct rewrite *r, grammar_node *root, int32_t *components) {
    if (find_reachable(r, *root) != 0 ||
        find_property(r, rewrite_is_empty_by_itself, r->emptiness) != 0)
        return -1;
    int32_t num_components = left_recursion_find(r, components);
    if (num_components == 0 && !repeats_what_may_be_empty(r))
        return 0;
    if (num_components >= 0)
        fill_rules(r, root);
    if (r->builder->failure != ERROR_NONE || find_reachable(r, *root) != 0)
        return -1;
    num_components = left_recursion_find(r, components);
    return num_components < 0 ? -1 : left_recursion_remove(r, components, num_components);
}

int grammar_rewrite(struct grammar_builder *builder, grammar_node *root) {
    enum { NUM_ARRAYS = 4 };
    grammar_node *memory = malloc(NUM_ARRAYS * GRAMMAR_MAX_NODES * sizeof(*memory));
    int8_t *emptiness = calloc(GRAMMAR_MAX_NODES, sizeof(*emptiness));
    bool *is_reachable = calloc(GRAMMAR_MAX_NODES, sizeof(*is_reachable));
    int result = -1;
    if (memory == NULL || emptiness == NULL || is_reachable == NULL) {
        grammar_builder_fail(builder, ERROR_MEMORY, "memory is short");
    } else {
        struct rewrite r = {builder,
                            emptiness,
                            memory,
                            memory + GRAMMAR_MAX_NODES,
                            is_reachable,
                            memory + 2 * GRAMMAR_MAX_NODES,
                            0};
        result = rewrite(&r, root, memory + 3 * GRAMMAR_MAX_NODES);
    }
    free(memory);
    free(emptiness);
    free(is_reachable);
    return builder->failure != ERROR_NONE ? -1 : result;
}
