/* Arrays. The schemas of a place are a goal; what counts items (contains, uniqueItems) is an
 * automaton over places, whose states are nodes made from the last to the first. */
#include "engine/grammar/read/json_schema_private.h"

#include "config/json/json_field.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- What a case says of an array --- */

#define ARRAY_MAX_PREFIX 256
#define ARRAY_MAX_LITERALS 32

/* A schema of all items from an index on. */
struct rest {
    struct schema_literal literal;
    int from;
};

/* What a case says of an array. */
struct array {
    int min, max; /* max < 0: no end */
    const struct schema_fact *prefixes[ARRAY_MAX_LITERALS];
    struct rest rests[ARRAY_MAX_LITERALS];
    const struct schema_fact *fails[ARRAY_MAX_LITERALS]; /* FACT_ITEM */
    const struct schema_fact *contains; /* or the opposite of items; NULL: neither */
    struct schema_literal contained;    /* what min_contained to max_contained items match */
    int min_contained, max_contained;   /* max_contained < 0: no end */
    int num_prefixes, num_rests, num_fails, num_places; /* places with a schema of their own */
    bool is_unique, is_closed, is_opened;
    const char *path;
};

/* The schemas that an item at a place must match. */
struct place_literals {
    struct schema_literal items[3 * ARRAY_MAX_LITERALS + 1];
};

enum content { ANY_ITEM, CONTAINED, NOT_CONTAINED };

/* --- Facts --- */

static int array_size(const cJSON *array) {
    return cJSON_IsArray(array) ? cJSON_GetArraySize(array) : 0;
}

static int prefix_size(const cJSON *schema) {
    const cJSON *prefix = json_member(schema, "prefixItems"), *items = json_member(schema, "items");
    return array_size(prefix == NULL && cJSON_IsArray(items) ? items : prefix);
}

static int too_many(struct schema_context *c, const struct schema_fact *fact) {
    return schema_decline(c, fact->of.path, "too many schemas must match one array");
}

static void bound(struct array *a, int min, int max) {
    a->min = min > a->min ? min : a->min;
    a->max = max >= 0 && (a->max < 0 || max < a->max) ? max : a->max;
}

/* The opposite of minItems is a maxItems, of which none is below 0. */
static int read_size(struct schema_context *c, const struct schema_fact *fact, struct array *a) {
    int size;
    bool is_min = strcmp(fact->item->string, "minItems") == 0;
    if (schema_count(c, fact, GRAMMAR_MAX_REPEAT - 1, &size) != 0)
        return -1;
    if (!fact->of.negated)
        bound(a, is_min ? size : 0, is_min ? -1 : size);
    else if (!is_min)
        bound(a, size + 1, -1);
    else if (size > 0)
        bound(a, 0, size - 1);
    else
        bound(a, 1, 0);
    return 0;
}

static int read_prefix(struct schema_context *c, const struct schema_fact *fact, struct array *a) {
    int size = array_size(fact->item);
    if (a->num_prefixes == ARRAY_MAX_LITERALS)
        return too_many(c, fact);
    if (size > ARRAY_MAX_PREFIX)
        return schema_decline(c, fact->of.path, "%s has more than %d items", fact->item->string,
                              ARRAY_MAX_PREFIX);
    a->prefixes[a->num_prefixes++] = fact;
    a->num_places = size > a->num_places ? size : a->num_places;
    a->is_closed = true;
    return 0;
}

static int add_rest(struct schema_context *c, const struct schema_fact *fact, int from,
                    struct array *a) {
    if (a->num_rests == ARRAY_MAX_LITERALS)
        return too_many(c, fact);
    struct rest *rest = &a->rests[a->num_rests++];
    rest->from = from;
    a->num_places = from > a->num_places ? from : a->num_places;
    a->is_opened = true;
    return schema_child(c, &fact->of, fact->item, fact->item->string, &rest->literal);
}

/* Some item matches the schema, or a number of them. */
static int read_contains(struct schema_context *c, const struct schema_fact *fact,
                         struct array *a) {
    static const char *const keys[] = {"minContains", "maxContains"};
    int *const values[] = {&a->min_contained, &a->max_contained};
    if (a->contains != NULL)
        return schema_decline(c, fact->of.path, "%s is not supported twice for one array",
                              fact->item->string);
    a->contains = fact;
    a->min_contained = 1;
    a->max_contained = -1;
    if (schema_child(c, &fact->of, fact->item, fact->item->string, &a->contained) != 0)
        return -1;
    a->contained.negated = strcmp(fact->item->string, "items") == 0;
    for (int i = 0; i < 2 && !a->contained.negated; i++) {
        struct schema_fact bound_fact = *fact;
        bound_fact.item = json_member(fact->of.schema, keys[i]);
        if (bound_fact.item != NULL &&
            schema_count(c, &bound_fact, GRAMMAR_MAX_REPEAT - 1, values[i]) != 0)
            return -1;
    }
    return 0;
}

/* The opposite of contains: every item fails the schema. */
static int read_no_contains(struct schema_context *c, const struct schema_fact *fact,
                            struct array *a) {
    bool was_opened = a->is_opened;
    if (add_rest(c, fact, 0, a) != 0)
        return -1;
    a->rests[a->num_rests - 1].literal.negated = true;
    a->is_opened = was_opened;
    return 0;
}

/* --- unevaluatedItems --- */

/* The number of items evaluated by the keywords next to unevaluatedItems, and within allOf and
 * $ref. -1: all. Anything that depends on the value is not supported. */
static int count_evaluated(struct schema_context *c, const struct schema_fact *fact,
                           const struct schema_literal *of, bool is_own, int nesting, int *out) {
    static const char *const others[] = {"anyOf", "oneOf", "if", "contains", "dependentSchemas"};
    const cJSON *schema = of->schema, *ref = json_member(schema, "$ref"), *item;
    const cJSON *items = json_member(schema, "items");
    int size = prefix_size(schema);
    if (nesting > 32)
        return schema_decline_depth(c, of->path);
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (json_member(schema, others[i]) != NULL)
            return schema_decline(c, fact->of.path, "unevaluatedItems is not supported with %s",
                                  others[i]);
    bool is_all = (items != NULL && !cJSON_IsArray(items)) ||
                  (cJSON_IsArray(items) && json_member(schema, "additionalItems") != NULL) ||
                  (!is_own && json_member(schema, "unevaluatedItems") != NULL);
    if (is_all || *out < 0)
        *out = -1;
    else
        *out = size > *out ? size : *out;
    if (ref != NULL) {
        struct schema_literal target;
        if (schema_resolve(c, of->path, ref, &target) != 0 ||
            count_evaluated(c, fact, &target, false, nesting + 1, out) != 0)
            return -1;
    }
    cJSON_ArrayForEach(item, json_member(schema, "allOf")) {
        struct schema_literal own = *of;
        own.schema = item;
        if (count_evaluated(c, fact, &own, false, nesting + 1, out) != 0)
            return -1;
    }
    return schema_add_steps(c, 4);
}

static int read_unevaluated(struct schema_context *c, const struct schema_fact *fact,
                            struct array *a) {
    int from = 0;
    if (cJSON_IsTrue(fact->item))
        return add_rest(c, fact, 0, a);
    if (count_evaluated(c, fact, &fact->of, true, 0, &from) != 0)
        return -1;
    return from >= 0 ? add_rest(c, fact, from, a) : 0;
}

static int read_keyword(struct schema_context *c, const struct schema_fact *fact, struct array *a) {
    const char *key = fact->item->string;
    if (strcmp(key, "minItems") == 0 || strcmp(key, "maxItems") == 0)
        return read_size(c, fact, a);
    if (strcmp(key, "uniqueItems") == 0) {
        a->is_unique = true;
        return 0;
    }
    if (strcmp(key, "contains") == 0)
        return fact->of.negated ? read_no_contains(c, fact, a) : read_contains(c, fact, a);
    if (strcmp(key, "unevaluatedItems") == 0)
        return read_unevaluated(c, fact, a);
    if (cJSON_IsArray(fact->item))
        return read_prefix(c, fact, a);
    if (strcmp(key, "items") == 0 && fact->of.negated)
        return read_contains(c, fact, a);
    if (strcmp(key, "enum") == 0 || strcmp(key, "const") == 0)
        return schema_decline(c, fact->of.path, "%s with an array is not supported within not",
                              key);
    return add_rest(c, fact, prefix_size(fact->of.schema), a);
}

static int read_array(struct schema_context *c, const struct schema_case *one, struct array *a) {
    memset(a, 0, sizeof(*a));
    a->max = -1;
    for (int i = 0; i < one->count; i++) {
        const struct schema_fact *fact = one->facts[i];
        a->path = fact->of.path;
        if (fact->kind != FACT_ITEM) {
            if (read_keyword(c, fact, a) != 0)
                return -1;
            continue;
        }
        if (a->num_fails == ARRAY_MAX_LITERALS || fact->index >= ARRAY_MAX_PREFIX)
            return too_many(c, fact);
        a->fails[a->num_fails++] = fact;
        a->num_places = fact->index >= a->num_places ? fact->index + 1 : a->num_places;
        bound(a, fact->index + 1, -1);
    }
    return 0;
}

/* --- The goal of a place --- */

static int prefix_literal(struct schema_context *c, const struct schema_fact *fact, int place,
                          struct schema_literal *out, int *count) {
    const cJSON *schema = fact->item->child;
    char label[48];
    for (int i = 0; i < place && schema != NULL; i++)
        schema = schema->next;
    if (schema == NULL)
        return 0;
    snprintf(label, sizeof(label), "%s[%d]", fact->item->string, place);
    ++*count;
    return schema_child(c, &fact->of, schema, label, out);
}

static int failing_literal(struct schema_context *c, const struct schema_fact *fact,
                           struct schema_literal *out) {
    char label[48];
    snprintf(label, sizeof(label), "%s[%d]", fact->name, fact->index);
    if (schema_child(c, &fact->of, fact->item, label, out) != 0)
        return -1;
    out->negated = true;
    return 0;
}

static int literals_of_place(struct schema_context *c, const struct array *a, int place,
                             struct schema_literal *literals, int *out_count) {
    int count = 0;
    for (int i = 0; i < a->num_prefixes; i++)
        if (prefix_literal(c, a->prefixes[i], place, &literals[count], &count) != 0)
            return -1;
    for (int i = 0; i < a->num_rests; i++)
        if (place >= a->rests[i].from)
            literals[count++] = a->rests[i].literal;
    for (int i = 0; i < a->num_fails; i++)
        if (a->fails[i]->index == place && failing_literal(c, a->fails[i], &literals[count++]) != 0)
            return -1;
    *out_count = count;
    return schema_add_steps(c, (size_t)(a->num_prefixes * (place + 1) + count));
}

/* The goal of an item at a place, of which `content` says whether it is counted. */
static int place_goal(struct schema_context *c, const struct array *a, int place,
                      enum content content, struct place_literals *memory,
                      struct schema_goal *out) {
    struct schema_literal *literals = memory->items;
    int count;
    if (literals_of_place(c, a, place, literals, &count) != 0)
        return -1;
    if (content != ANY_ITEM) {
        literals[count] = a->contained;
        literals[count++].negated = a->contained.negated != (content == NOT_CONTAINED);
    }
    *out = (struct schema_goal){literals, count};
    return 0;
}

/* Places that nothing can stand at end the array; without a word on further items it is closed. */
static int close_array(struct schema_context *c, struct array *a) {
    if (a->is_closed && !a->is_opened)
        bound(a, 0, a->num_places);
    for (int place = 0; place <= a->num_places && (a->max < 0 || place < a->max); place++) {
        struct place_literals literals;
        struct schema_goal goal;
        bool is_empty;
        if (place_goal(c, a, place, ANY_ITEM, &literals, &goal) != 0 ||
            schema_goal_is_empty(c, &goal, &is_empty) != 0)
            return -1;
        if (is_empty)
            bound(a, 0, place);
    }
    return 0;
}

#define MAX_STATES 4096
#define MAX_UNIQUE 10 /* values that an item of a uniqueItems array may have */

/* --- Nodes --- */

static int place_node(struct schema_context *c, const struct array *a, int place,
                      enum content content, grammar_node *out) {
    struct place_literals literals;
    struct schema_goal goal;
    if (place_goal(c, a, place, content, &literals, &goal) != 0)
        return -1;
    int result = schema_goal_node(c, &goal, out);
    *out = schema_inner(c, *out);
    return result;
}

static grammar_node optional(struct schema_context *c, grammar_node node) {
    return grammar_repeat(c->builder, node, 0, 1);
}

/* The items after the first, each after a comma: that of the last place any allowed number of
 * times, and the others before it. */
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
                                    "uniqueItems is not supported with prefixItems or contains");
    if (place_goal(c, a, 0, ANY_ITEM, &literals, &goal) != 0 ||
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
    if (close_array(c, a) != 0)
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
    if (read_array(c, one, &a) != 0 || content(c, &a, &items[1]) != 0)
        return -1;
    *out = schema_sequence(c, items, 3);
    return 0;
}

/* Whether too few items can be contained is not looked at. */
int schema_array_is_empty(struct schema_context *c, const struct schema_case *one, bool *out) {
    struct array a;
    if (read_array(c, one, &a) != 0)
        return -1;
    a.is_closed = false; /* which is not the schema's word */
    if (a.min > 0 && close_array(c, &a) != 0)
        return -1;
    *out = a.max >= 0 && a.min > a.max;
    if (*out)
        schema_note_empty(c, a.path, "fewer items are allowed than there must be");
    return 0;
}
