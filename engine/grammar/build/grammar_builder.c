#include "engine/grammar/build/grammar_builder.h"
#include "engine/grammar/build/grammar_nodes.h"

#include "config/base/array.h"

#include <stdlib.h>
#include <string.h>

#define LAST_CHARACTER 0x10ffff
#define NODE_WORK 40

struct grammar_builder *grammar_builder_create(void) {
    struct grammar_builder *builder = calloc(1, sizeof(*builder));
    if (builder != NULL)
        builder->work_left = GRAMMAR_MAX_WORK;
    return builder;
}

int64_t *grammar_builder_work(struct grammar_builder *builder) {
    return &builder->work_left;
}

void grammar_builder_ignore(struct grammar_builder *builder, struct byte_buffer *names) {
    builder->ignored = names;
}

struct byte_buffer *grammar_builder_ignored(const struct grammar_builder *builder) {
    return builder->ignored;
}

void grammar_builder_destroy(struct grammar_builder *builder) {
    if (builder == NULL)
        return;
    free(builder->nodes);
    free(builder->bytes);
    free(builder->items);
    free(builder->ranges);
    free(builder);
}

grammar_node grammar_builder_fail(struct grammar_builder *builder, enum error_code code,
                                  const char *reason) {
    if (builder->failure == ERROR_NONE) {
        builder->failure = code;
        builder->reason = reason;
    }
    return GRAMMAR_FAILED;
}

/* Makes room for `more` entries of item_bytes each after the first `count`; no array grows beyond
 * GRAMMAR_MAX_CONTENT. */
static bool reserve(struct grammar_builder *builder, void *items, size_t *capacity, int32_t count,
                    size_t more, size_t item_bytes) {
    if (more > (size_t)(GRAMMAR_MAX_CONTENT - count)) {
        grammar_builder_fail(builder, ERROR_SYNTAX, "the grammar is too large");
        return false;
    }
    if (!array_reserve(items, capacity, (size_t)count + more, item_bytes)) {
        grammar_builder_fail(builder, ERROR_MEMORY, "memory is short");
        return false;
    }
    return true;
}

static grammar_node add_node(struct grammar_builder *builder, struct node node) {
    if (builder->num_nodes == GRAMMAR_MAX_NODES)
        return grammar_builder_fail(builder, ERROR_SYNTAX, "the grammar is too large");
    if (!reserve(builder, &builder->nodes, &builder->nodes_capacity, builder->num_nodes, 1,
                 sizeof(node)))
        return GRAMMAR_FAILED;
    builder->nodes[builder->num_nodes] = node;
    builder->work_left -= NODE_WORK;
    return builder->num_nodes++;
}

static bool is_node(const struct grammar_builder *builder, grammar_node node) {
    return node >= 0 && node < builder->num_nodes;
}

grammar_node grammar_literal(struct grammar_builder *builder, const char *bytes, size_t length) {
    size_t room = length > 0 ? length : 1; /* so that there are bytes to point to */
    if (builder->failure != ERROR_NONE ||
        !reserve(builder, &builder->bytes, &builder->bytes_capacity, builder->num_bytes, room, 1))
        return GRAMMAR_FAILED;
    struct node node = {NODE_LITERAL, .first = builder->num_bytes, .count = (int32_t)length};
    if (length > 0)
        memcpy(builder->bytes + builder->num_bytes, bytes, length);
    builder->num_bytes += (int32_t)length;
    return add_node(builder, node);
}

grammar_node grammar_open_object(struct grammar_builder *builder) {
    grammar_node node = grammar_literal(builder, "{", 1);
    if (node >= 0)
        builder->nodes[node].opens_object = true;
    return node;
}

grammar_node grammar_token(struct grammar_builder *builder, int32_t token) {
    if (builder->failure != ERROR_NONE)
        return GRAMMAR_FAILED;
    return add_node(builder, (struct node){NODE_TOKEN, .first = token});
}

grammar_node grammar_characters(struct grammar_builder *builder,
                                const struct character_range *ranges, int num_ranges,
                                bool negated) {
    if (builder->failure != ERROR_NONE)
        return GRAMMAR_FAILED;
    for (int i = 0; i < num_ranges; i++)
        if (ranges[i].first > ranges[i].last || ranges[i].last > LAST_CHARACTER)
            return grammar_builder_fail(builder, ERROR_SYNTAX,
                                        "a range of characters is empty or above U+10FFFF");
    size_t room =
        num_ranges > 0 ? (size_t)num_ranges : 1; /* so that there are ranges to point to */
    if (!reserve(builder, &builder->ranges, &builder->ranges_capacity, builder->num_ranges, room,
                 sizeof(*ranges)))
        return GRAMMAR_FAILED;
    struct node node = {NODE_CHARACTERS, negated, .first = builder->num_ranges,
                        .count = num_ranges};
    if (num_ranges > 0)
        memcpy(builder->ranges + builder->num_ranges, ranges, (size_t)num_ranges * sizeof(*ranges));
    builder->num_ranges += num_ranges;
    return add_node(builder, node);
}

static grammar_node add_list(struct grammar_builder *builder, struct node node,
                             const grammar_node *items, int count) {
    if (builder->failure != ERROR_NONE)
        return GRAMMAR_FAILED;
    for (int i = 0; i < count; i++)
        if (!is_node(builder, items[i]))
            return grammar_builder_fail(builder, ERROR_SYNTAX,
                                        "an item of the grammar does not exist");
    size_t room = count > 0 ? (size_t)count : 1; /* so that there are items to point to */
    if (!reserve(builder, &builder->items, &builder->items_capacity, builder->num_items, room,
                 sizeof(*items)))
        return GRAMMAR_FAILED;
    node.first = builder->num_items;
    node.count = count;
    if (count > 0)
        memcpy(builder->items + builder->num_items, items, (size_t)count * sizeof(*items));
    builder->num_items += count;
    return add_node(builder, node);
}

grammar_node grammar_sequence(struct grammar_builder *builder, const grammar_node *items,
                              int count) {
    return add_list(builder, (struct node){NODE_SEQUENCE}, items, count);
}

grammar_node grammar_alternatives(struct grammar_builder *builder, const grammar_node *items,
                                  int count) {
    return add_list(builder, (struct node){NODE_ALTERNATIVES}, items, count);
}

grammar_node grammar_repeat(struct grammar_builder *builder, grammar_node item, int min, int max) {
    if (min < 0 || min > GRAMMAR_MAX_REPEAT || max > GRAMMAR_MAX_REPEAT || (max >= 0 && max < min))
        return grammar_builder_fail(builder, ERROR_SYNTAX,
                                    "a repetition's bounds are not 0 <= min <= max <= 65536");
    return add_list(builder, (struct node){NODE_REPEAT, .min = min, .max = max}, &item, 1);
}

grammar_node grammar_rule(struct grammar_builder *builder) {
    if (builder->failure != ERROR_NONE)
        return GRAMMAR_FAILED;
    return add_node(builder, (struct node){NODE_RULE, .first = -1});
}

void grammar_define(struct grammar_builder *builder, grammar_node rule, grammar_node body) {
    if (builder->failure != ERROR_NONE)
        return;
    if (!is_node(builder, rule) || !is_node(builder, body) ||
        builder->nodes[rule].kind != NODE_RULE || builder->nodes[rule].first >= 0)
        grammar_builder_fail(builder, ERROR_SYNTAX, "a rule is defined twice, or is not a rule");
    else
        builder->nodes[rule].first = body;
}
