/* Arrays. The schemas of a place are a goal; what counts items (contains, uniqueItems) is an
 * automaton over places, whose states are nodes made from the last to the first. */
#include "engine/grammar/read/json_schema_items.h"

#include "config/json/json_field.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_STATES 4096
#define MAX_UNIQUE 10 /* values that an item of a uniqueItems array may have */

/* --- Nodes --- */

static int place_node(struct schema_context *c, const struct array *a, int place,
                      enum content content, grammar_node *out) {
    struct place_literals literals;
    struct schema_goal goal;
    if (schema_place_goal(c, a, place, content, &literals, &goal) != 0)
        return -1;
    int result = schema_goal_node(c, &goal, out);
    *out = schema_inner(c, *out);
    return result;
}

static grammar_node optional(struct schema_context *c, grammar_node node) {
    return grammar_repeat(c->builder, node, 0, 1);
}

/* The items behind the first, each behind a comma: the last place's as often as may be, and the
 * others before it. */
static int items_behind(struct schema_context *c, const struct array *a, grammar_node *out) {
    int places = a->num_places > 1 ? a->num_places : 1;
    int max = a->max < 0 ? -1 : a->max > places ? a->max - places : 0;
    int min = a->min > places ? a->min - places : 0;
    grammar_node rest[] = {schema_comma(c), GRAMMAR_FAILED}, node;
    if (max == 0)
        node = schema_sequence(c, NULL, 0);
    else if (place_node(c, a, places, ANY_ITEM, &rest[1]) != 0)
        return -1;
    else
        node = grammar_repeat(c->builder, schema_sequence(c, rest, 2), min, max);
    for (int place = places - 1; place >= 1; place--) {
        grammar_node items[] = {schema_comma(c), GRAMMAR_FAILED, node};
        if (a->max >= 0 && place >= a->max)
            continue;
        if (place_node(c, a, place, ANY_ITEM, &items[1]) != 0)
            return -1;
        node = schema_sequence(c, items, 3);
        if (place >= a->min)
            node = optional(c, node);
    }
    *out = node;
    return 0;
}

static int plain_content(struct schema_context *c, const struct array *a, grammar_node *out) {
    grammar_node items[2];
    if (a->max == 0) {
        *out = schema_sequence(c, NULL, 0);
        return 0;
    }
    if (place_node(c, a, 0, ANY_ITEM, &items[0]) != 0 || items_behind(c, a, &items[1]) != 0)
        return -1;
    *out = schema_sequence(c, items, 2);
    if (a->min == 0)
        *out = optional(c, *out);
    return 0;
}

/* --- contains --- */

/* A state: how many items there are, and how many of them are contained, each up to where more
 * makes no difference. */
struct counting {
    const struct array *array;
    int places, contained; /* the largest of each */
    grammar_node *nodes;   /* [(places + 1) * (contained + 1)] what follows in the state */
};

static grammar_node *state_node(const struct counting *s, int place, int contained) {
    return &s->nodes[place * (s->contained + 1) + contained];
}

/* An item, and what follows it. Where the state is its own successor the node is a rule. */
static int add_item(struct schema_context *c, const struct counting *s, int place, int contained,
                    enum content content, grammar_node *items, int *count) {
    const struct array *a = s->array;
    int next_place = place < s->places ? place + 1 : place;
    int next = content == CONTAINED && contained < s->contained ? contained + 1 : contained;
    grammar_node parts[] = {GRAMMAR_FAILED, GRAMMAR_FAILED, GRAMMAR_FAILED};
    parts[0] = place > 0 ? schema_comma(c) : schema_text(c, "");
    if (content == CONTAINED && a->max_contained >= 0 && contained == a->max_contained)
        return 0;
    int at = place < a->num_places ? place : a->num_places;
    if (place_node(c, a, at, content, &parts[1]) != 0)
        return -1;
    parts[2] = *state_node(s, next_place, next);
    items[(*count)++] = schema_sequence(c, parts, 3);
    return 0;
}

/* Without a maximum an item need not be told apart: any of them may be one that is not counted. */
static int make_state(struct schema_context *c, const struct counting *s, int place,
                      int contained) {
    const struct array *a = s->array;
    grammar_node items[3];
    int count = 0;
    bool loops = a->max < 0 && place == s->places;
    grammar_node *node = state_node(s, place, contained);
    if (loops)
        *node = grammar_rule(c->builder);
    if (place >= a->min && contained >= a->min_contained)
        items[count++] = schema_text(c, "");
    if (a->max < 0 || place < a->max) {
        bool is_done = a->max_contained < 0 && contained == s->contained;
        if ((!is_done && add_item(c, s, place, contained, CONTAINED, items, &count) != 0) ||
            add_item(c, s, place, contained, a->max_contained < 0 ? ANY_ITEM : NOT_CONTAINED, items,
                     &count) != 0)
            return -1;
    }
    grammar_node body =
        count > 0 ? grammar_alternatives(c->builder, items, count) : schema_nothing(c);
    if (loops)
        grammar_define(c->builder, *node, body);
    else
        *node = body;
    return 0;
}

static int counted_content(struct schema_context *c, const struct array *a, grammar_node *out) {
    int places = a->min > a->num_places ? a->min : a->num_places;
    struct counting s = {a, places > 1 ? places : 1, a->min_contained, NULL};
    s.places = a->max >= 0 ? a->max : s.places;
    s.contained = a->max_contained > s.contained ? a->max_contained : s.contained;
    if ((int64_t)(s.places + 1) * (s.contained + 1) > MAX_STATES)
        return schema_decline(c, a->path, "%s is not supported with so large bounds of items",
                              a->contains->item->string);
    s.nodes = malloc((size_t)(s.places + 1) * (size_t)(s.contained + 1) * sizeof(*s.nodes));
    if (s.nodes == NULL)
        return api_error_set_memory(c->err);
    int result = 0;
    for (int place = s.places; place >= 0 && result == 0; place--)
        for (int contained = s.contained; contained >= 0 && result == 0; contained--)
            result = make_state(c, &s, place, contained);
    *out = result == 0 ? *state_node(&s, 0, 0) : GRAMMAR_FAILED;
    free(s.nodes);
    return result;
}

/* --- uniqueItems --- */

/* A state is the set of values that are still to be had. */
static int unique_states(struct schema_context *c, const struct array *a, const cJSON **values,
                         int count, grammar_node *nodes) {
    grammar_node literals[MAX_UNIQUE];
    for (int i = 0; i < count; i++)
        if (schema_literal(c, values[i], &literals[i]) != 0)
            return -1;
        else
            literals[i] = schema_inner(c, literals[i]);
    for (unsigned left = 0; left < 1u << count; left++) {
        grammar_node items[MAX_UNIQUE + 1];
        int num_items = 0, num_used = 0;
        for (int i = 0; i < count; i++)
            num_used += (left >> i & 1u) == 0;
        if (num_used >= a->min)
            items[num_items++] = schema_text(c, "");
        for (int i = 0; i < count && (a->max < 0 || num_used < a->max); i++) {
            if ((left >> i & 1u) == 0)
                continue;
            grammar_node parts[] = {num_used > 0 ? schema_comma(c) : schema_text(c, ""),
                                    literals[i], nodes[left & ~(1u << i)]};
            items[num_items++] = schema_sequence(c, parts, 3);
        }
        nodes[left] =
            num_items > 0 ? grammar_alternatives(c->builder, items, num_items) : schema_nothing(c);
    }
    return 0;
}

static int any_content(struct schema_context *c, const struct array *a, grammar_node *out) {
    return a->contains != NULL ? counted_content(c, a, out) : plain_content(c, a, out);
}

static int unique_content(struct schema_context *c, const struct array *a, grammar_node *out) {
    const cJSON *values[MAX_UNIQUE];
    struct place_literals literals;
    struct schema_goal goal;
    int count;
    if (a->contains != NULL || a->num_places > 0)
        return schema_ignores(c, a->path, "uniqueItems")
                   ? any_content(c, a, out)
                   : schema_decline(c, a->path,
                                    "uniqueItems is not supported beside prefixItems or contains");
    if (schema_place_goal(c, a, 0, ANY_ITEM, &literals, &goal) != 0 ||
        schema_goal_values(c, &goal, values, MAX_UNIQUE, &count) != 0)
        return -1;
    if (count < 0 && schema_ignores(c, a->path, "uniqueItems"))
        return any_content(c, a, out);
    if (count < 0)
        return schema_decline(c, a->path,
                              "uniqueItems is supported for items of an enum of at most %d values",
                              MAX_UNIQUE);
    grammar_node *nodes = malloc(sizeof(*nodes) << count);
    if (nodes == NULL)
        return api_error_set_memory(c->err);
    int result = unique_states(c, a, values, count, nodes);
    *out = nodes[(1u << count) - 1];
    free(nodes);
    return result;
}

static int content(struct schema_context *c, struct array *a, grammar_node *out) {
    if (schema_close_array(c, a) != 0)
        return -1;
    if (a->max >= 0 && a->min > a->max) {
        *out = schema_nothing(c);
        return 0;
    }
    if (a->is_unique && (a->max < 0 || a->max > 1))
        return unique_content(c, a, out);
    return any_content(c, a, out);
}

int schema_array(struct schema_context *c, const struct schema_case *one, grammar_node *out) {
    struct array a;
    grammar_node items[] = {schema_open(c, "["), GRAMMAR_FAILED, schema_text(c, "]")};
    if (schema_read_array(c, one, &a) != 0 || content(c, &a, &items[1]) != 0)
        return -1;
    *out = schema_sequence(c, items, 3);
    return 0;
}

/* Whether too few items can be contained is not looked at. */
int schema_array_is_empty(struct schema_context *c, const struct schema_case *one, bool *out) {
    struct array a;
    if (schema_read_array(c, one, &a) != 0)
        return -1;
    a.is_closed = false; /* which is not the schema's word */
    if (a.min > 0 && schema_close_array(c, &a) != 0)
        return -1;
    *out = a.max >= 0 && a.min > a.max;
    if (*out)
        schema_note_empty(c, a.path, "fewer items are allowed than there must be");
    return 0;
}
