/* Goals to nodes. Each goal is compiled once and found again by its schemas, which ends the
 * recursion of schemas that contain themselves: a goal that is met while it is being compiled
 * becomes a rule. */
#include "engine/grammar/read/json_schema_private.h"

#include "config/json/json_field.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- Values that an enum or a const names --- */

/* The values of one enum, or one const, of which those are chosen that match all else. */
struct schema_choice {
    const cJSON *item, *first; /* its first value: of a const the item itself */
    bool is_const;
};

/* The values of a choice that a goal, or else a case, admits. */
struct schema_admission {
    const struct schema_goal *goal;
    enum json_type type;
    const struct schema_case *one;
};

static const cJSON null_value = {.type = cJSON_NULL}, true_value = {.type = cJSON_True},
                   false_value = {.type = cJSON_False};

static bool find_choice(const cJSON *item, bool negated, struct schema_choice *out) {
    if (item == NULL || negated)
        return false;
    out->item = item;
    out->is_const = strcmp(item->string, "const") == 0;
    out->first = out->is_const ? item : item->child;
    return out->is_const || (strcmp(item->string, "enum") == 0 && cJSON_IsArray(item));
}

static const cJSON *next_value(const struct schema_choice *choice, const cJSON *value) {
    return choice->is_const ? NULL : value->next;
}

/* Finds a schema of the goal, or a fact of the case, that names its values. */
static bool goal_choice(const struct schema_context *c, const struct schema_goal *goal,
                        struct schema_choice *out) {
    for (int i = 0; i < goal->count; i++) {
        const struct schema_literal *literal = &goal->literals[i];
        if (c->ignores_ref_siblings && json_member(literal->schema, "$ref") != NULL)
            continue;
        if (find_choice(json_member(literal->schema, "const"), literal->negated, out) ||
            find_choice(json_member(literal->schema, "enum"), literal->negated, out))
            return out->first != NULL;
    }
    return false;
}

static bool case_choice(const struct schema_case *one, struct schema_choice *out) {
    for (int i = 0; i < one->count; i++)
        if (one->facts[i]->kind == FACT_KEYWORD &&
            find_choice(one->facts[i]->item, one->facts[i]->of.negated, out))
            return true;
    return false;
}

static int goal_admits(struct schema_context *c, const struct schema_goal *goal, const cJSON *value,
                       bool *out) {
    *out = true;
    for (int i = 0; i < goal->count && *out; i++)
        if (schema_value_matches(c, &goal->literals[i], value, out) != 0)
            return -1;
    return 0;
}

static int case_admits(struct schema_context *c, enum json_type type, const struct schema_case *one,
                       const cJSON *value, bool *out) {
    *out = schema_type_of(value) == type;
    for (int i = 0; i < one->count && *out; i++)
        if (schema_fact_holds(c, one->facts[i], value, out) != 0)
            return -1;
    return 0;
}

static int admits(struct schema_context *c, const struct schema_choice *choice,
                  const struct schema_admission *admission, const cJSON *value, bool *out) {
    c->choice = choice->item;
    c->chosen = value;
    return admission->goal != NULL ? goal_admits(c, admission->goal, value, out)
                                   : case_admits(c, admission->type, admission->one, value, out);
}

/* The admitted values as nodes, and whether there are none. */
static int choice_node(struct schema_context *c, const struct schema_choice *choice,
                       const struct schema_admission *admission, grammar_node *out) {
    size_t capacity = 1;
    int count = 0, result = 0;
    for (const cJSON *value = choice->first; value != NULL; value = next_value(choice, value))
        capacity++;
    grammar_node *items = malloc(capacity * sizeof(*items));
    if (items == NULL)
        return api_error_set_memory(c->err);
    for (const cJSON *value = choice->first; value != NULL && result == 0;
         value = next_value(choice, value)) {
        bool is_admitted;
        result = admits(c, choice, admission, value, &is_admitted);
        if (result == 0 && is_admitted)
            result = schema_literal(c, value, &items[count++]);
    }
    if (result == 0)
        *out = count > 0 ? grammar_alternatives(c->builder, items, count) : schema_nothing(c);
    free(items);
    return result;
}

static int choice_is_empty(struct schema_context *c, const struct schema_choice *choice,
                           const struct schema_admission *admission, bool *out) {
    const char *path = admission->goal != NULL ? admission->goal->literals[0].path
                                               : admission->one->facts[0]->of.path;
    *out = true;
    for (const cJSON *value = choice->first; value != NULL && *out;
         value = next_value(choice, value)) {
        bool is_admitted;
        if (admits(c, choice, admission, value, &is_admitted) != 0)
            return -1;
        *out = !is_admitted;
    }
    if (*out)
        schema_note_empty(c, path, "no value of enum or const matches all else");
    return 0;
}

/* --- All values of a goal --- */

struct value_list {
    const cJSON **values;
    int count, max;
    bool is_known;
};

static int add_value(struct schema_context *c, struct value_list *list, const cJSON *value) {
    for (int i = 0; i < list->count; i++)
        if (schema_values_equal(c, list->values[i], value))
            return schema_add_steps(c, 0);
    list->is_known = list->is_known && list->count < list->max;
    if (list->is_known)
        list->values[list->count++] = value;
    return schema_add_steps(c, 0);
}

static int add_choice(struct schema_context *c, struct value_list *list,
                      const struct schema_choice *choice,
                      const struct schema_admission *admission) {
    for (const cJSON *value = choice->first; value != NULL; value = next_value(choice, value)) {
        bool is_admitted;
        if (admits(c, choice, admission, value, &is_admitted) != 0 ||
            (is_admitted && add_value(c, list, value) != 0))
            return -1;
    }
    return 0;
}

static int add_values_of_case(struct schema_context *c, struct value_list *list,
                              enum json_type type, const struct schema_case *one) {
    static const cJSON *const plain[] = {&null_value, &false_value, &true_value};
    const struct schema_admission admission = {NULL, type, one};
    struct schema_choice choice;
    if (case_choice(one, &choice))
        return add_choice(c, list, &choice, &admission);
    list->is_known = list->is_known && (type == NULL_TYPE || type == BOOLEAN);
    for (int i = 0; i < 3; i++) {
        bool is_admitted;
        if (case_admits(c, type, one, plain[i], &is_admitted) != 0 ||
            (is_admitted && add_value(c, list, plain[i]) != 0))
            return -1;
    }
    return 0;
}

int schema_goal_values(struct schema_context *c, const struct schema_goal *goal,
                       const cJSON **values, int max, int *out_count) {
    struct value_list list = {values, 0, max, true};
    struct schema_entry *entry = schema_find_entry(c, goal);
    if (entry == NULL)
        return -1;
    const struct schema_admission admission = {&entry->goal, NUM_TYPES, NULL};
    struct schema_choice choice;
    bool has_choice = goal_choice(c, &entry->goal, &choice);
    if (has_choice && add_choice(c, &list, &choice, &admission) != 0)
        return -1;
    for (int type = 0; type < NUM_TYPES && !has_choice && list.is_known; type++) {
        struct schema_cases cases;
        if (schema_expand_goal(c, &entry->goal, (enum json_type)type, &cases) != 0)
            return -1;
        for (int i = 0; i < cases.count && list.is_known; i++) {
            bool is_empty;
            if (schema_case_is_empty(c, (enum json_type)type, &cases.items[i], &is_empty) != 0 ||
                (!is_empty &&
                 add_values_of_case(c, &list, (enum json_type)type, &cases.items[i]) != 0))
                return -1;
        }
    }
    *out_count = list.is_known ? list.count : -1;
    return 0;
}

#define MAX_NESTING 12 /* deeper goals are deferred, so that no call nests deep */

/* --- Cases --- */

static int booleans_of(struct schema_context *c, const struct schema_case *one, bool out[2]) {
    return case_admits(c, BOOLEAN, one, &false_value, &out[0]) != 0 ||
                   case_admits(c, BOOLEAN, one, &true_value, &out[1]) != 0
               ? -1
               : 0;
}

static int node_of_boolean(struct schema_context *c, const struct schema_case *one,
                           grammar_node *out) {
    bool admitted[2];
    grammar_node items[2];
    int count = 0;
    if (booleans_of(c, one, admitted) != 0)
        return -1;
    if (admitted[1])
        items[count++] = schema_text(c, "true");
    if (admitted[0])
        items[count++] = schema_text(c, "false");
    *out = count > 0 ? grammar_alternatives(c->builder, items, count) : schema_nothing(c);
    return 0;
}

static int node_of_null(struct schema_context *c, const struct schema_case *one,
                        grammar_node *out) {
    bool is_admitted;
    if (case_admits(c, NULL_TYPE, one, &null_value, &is_admitted) != 0)
        return -1;
    *out = is_admitted ? schema_text(c, "null") : schema_nothing(c);
    return 0;
}

static int node_of_case(struct schema_context *c, enum json_type type,
                        const struct schema_case *one, grammar_node *out) {
    static int (*const of_type[NUM_TYPES])(struct schema_context *, const struct schema_case *,
                                           grammar_node *) = {
        node_of_null, node_of_boolean, schema_number, schema_string, schema_array, schema_object};
    const struct schema_admission admission = {NULL, type, one};
    struct schema_choice choice;
    if (case_choice(one, &choice))
        return choice_node(c, &choice, &admission, out);
    return of_type[type](c, one, out);
}

static int boolean_is_empty(struct schema_context *c, const struct schema_case *one, bool *out) {
    bool admitted[2];
    int result = booleans_of(c, one, admitted);
    *out = result == 0 && !admitted[0] && !admitted[1];
    return result;
}

static int null_is_empty(struct schema_context *c, const struct schema_case *one, bool *out) {
    bool is_admitted;
    int result = case_admits(c, NULL_TYPE, one, &null_value, &is_admitted);
    *out = result == 0 && !is_admitted;
    return result;
}

int schema_case_is_empty(struct schema_context *c, enum json_type type,
                         const struct schema_case *one, bool *out) {
    static int (*const of_type[NUM_TYPES])(struct schema_context *, const struct schema_case *,
                                           bool *) = {
        null_is_empty,          boolean_is_empty,      schema_number_is_empty,
        schema_string_is_empty, schema_array_is_empty, schema_object_is_empty};
    const struct schema_admission admission = {NULL, type, one};
    struct schema_choice choice;
    if (one->count == 0) {
        *out = false;
        return 0;
    }
    if (case_choice(one, &choice))
        return choice_is_empty(c, &choice, &admission, out);
    return of_type[type](c, one, out);
}

/* --- Nodes --- */

static grammar_node any_of_type(struct schema_context *c, enum json_type type) {
    switch (type) {
    case NUMBER:
        return schema_any_number(c);
    case STRING:
        return schema_any_string(c);
    case ARRAY:
        return schema_any_array(c);
    case OBJECT:
        return schema_any_object(c);
    case NULL_TYPE:
    case BOOLEAN:
    case NUM_TYPES:
        break;
    }
    grammar_node items[] = {schema_text(c, "true"), schema_text(c, "false")};
    return type == NULL_TYPE ? schema_text(c, "null") : grammar_alternatives(c->builder, items, 2);
}

static bool is_any(const struct schema_cases *cases) {
    for (int i = 0; i < cases->count; i++)
        if (cases->items[i].count == 0)
            return true;
    return false;
}

static int node_of_types(struct schema_context *c, const struct schema_goal *goal,
                         grammar_node *out) {
    struct schema_cases cases[NUM_TYPES];
    grammar_node items[NUM_TYPES * SCHEMA_MAX_CASES];
    unsigned types;
    int count = 0, num_any = 0;
    if (schema_meant_types(c, goal, &types) != 0)
        return -1;
    for (int type = 0; type < NUM_TYPES; type++) {
        cases[type].count = 0;
        if ((types >> type & 1u) != 0 &&
            schema_expand_goal(c, goal, (enum json_type)type, &cases[type]) != 0)
            return -1;
        num_any += is_any(&cases[type]);
    }
    if (num_any == NUM_TYPES) {
        *out = schema_any_value(c);
        return 0;
    }
    for (int type = 0; type < NUM_TYPES; type++) {
        if (is_any(&cases[type])) {
            items[count++] = any_of_type(c, (enum json_type)type);
            continue;
        }
        for (int i = 0; i < cases[type].count; i++)
            if (node_of_case(c, (enum json_type)type, &cases[type].items[i], &items[count++]) != 0)
                return -1;
    }
    *out = count == 0   ? schema_nothing(c)
           : count == 1 ? items[0]
                        : grammar_alternatives(c->builder, items, count);
    return 0;
}

/* Each branch is a separate goal, compiled once for all references. */
static int node_of_branches(struct schema_context *c, const struct schema_literal *of,
                            const cJSON *branches, grammar_node *out) {
    grammar_node items[JSON_SCHEMA_MAX_BRANCHES];
    int count = 0;
    const cJSON *branch;
    cJSON_ArrayForEach(branch, branches) {
        struct schema_literal literal;
        const struct schema_goal goal = {&literal, 1};
        char label[32];
        if (count == JSON_SCHEMA_MAX_BRANCHES)
            return schema_decline(c, of->path, "%s has more than %d schemas", branches->string,
                                  JSON_SCHEMA_MAX_BRANCHES);
        snprintf(label, sizeof(label), "%s[%d]", branches->string, count);
        if (schema_child(c, of, branch, label, &literal) != 0 ||
            schema_goal_node(c, &goal, &items[count++]) != 0)
            return -1;
    }
    *out = grammar_alternatives(c->builder, items, count);
    return 0;
}

/* *out NULL: the goal is not just an anyOf, or a oneOf whose branches share nothing. */
static int find_branches(struct schema_context *c, const struct schema_goal *goal,
                         const cJSON **out) {
    const struct schema_literal *literal = &goal->literals[0];
    const cJSON *any = json_member(literal->schema, "anyOf");
    const cJSON *one = json_member(literal->schema, "oneOf");
    bool is_disjoint;
    *out = NULL;
    if (goal->count != 1 || literal->negated)
        return 0;
    if (cJSON_IsArray(any) && any->child != NULL && schema_says_only(c, literal->schema, "anyOf"))
        *out = any;
    if (!cJSON_IsArray(one) || one->child == NULL || !schema_says_only(c, literal->schema, "oneOf"))
        return 0;
    if (schema_branches_are_disjoint(c, literal, one, &is_disjoint) != 0)
        return -1;
    if (is_disjoint)
        *out = one;
    return 0;
}

static int compile(struct schema_context *c, const struct schema_goal *goal, grammar_node *out) {
    const struct schema_admission admission = {goal, NUM_TYPES, NULL};
    struct schema_choice choice;
    const cJSON *branches;
    if (goal->count == 0) {
        *out = schema_any_value(c);
        return 0;
    }
    if (goal_choice(c, goal, &choice))
        return choice_node(c, &choice, &admission, out);
    if (find_branches(c, goal, &branches) != 0)
        return -1;
    if (branches != NULL)
        return node_of_branches(c, &goal->literals[0], branches, out);
    return node_of_types(c, goal, out);
}

static int compile_entry(struct schema_context *c, struct schema_entry *entry) {
    entry->progress = COMPILING;
    c->nesting++;
    int result = compile(c, &entry->goal, &entry->node);
    c->nesting--;
    entry->progress = COMPILED;
    if (result == 0 && entry->rule >= 0)
        grammar_define(c->builder, entry->rule, entry->node);
    return result;
}

static void defer(struct schema_context *c, struct schema_entry *entry) {
    entry->progress = DEFERRED;
    if (c->last_deferred != NULL)
        c->last_deferred->next_deferred = entry;
    else
        c->first_deferred = entry;
    c->last_deferred = entry;
}

int schema_goal_node(struct schema_context *c, const struct schema_goal *goal, grammar_node *out) {
    struct schema_entry *entry = schema_find_entry(c, goal);
    if (entry == NULL)
        return -1;
    if (entry->progress == UNTOUCHED && c->nesting >= MAX_NESTING)
        defer(c, entry);
    else if (entry->progress == UNTOUCHED && compile_entry(c, entry) != 0)
        return -1;
    if (entry->rule < 0 && entry->progress != COMPILED)
        entry->rule = grammar_rule(c->builder);
    *out = entry->rule >= 0 ? entry->rule : entry->node;
    return 0;
}

int schema_define_goals(struct schema_context *c) {
    while (c->first_deferred != NULL) {
        struct schema_entry *entry = c->first_deferred;
        c->first_deferred = entry->next_deferred;
        if (c->first_deferred == NULL)
            c->last_deferred = NULL;
        if (compile_entry(c, entry) != 0)
            return -1;
    }
    return 0;
}

/* --- Emptiness --- */

static int search_emptiness(struct schema_context *c, const struct schema_goal *goal,
                            unsigned types, bool *out) {
    const struct schema_admission admission = {goal, NUM_TYPES, NULL};
    struct schema_choice choice;
    *out = goal->count > 0;
    if (goal->count > 0 && goal_choice(c, goal, &choice))
        return choice_is_empty(c, &choice, &admission, out);
    for (int type = 0; type < NUM_TYPES && *out; type++) {
        struct schema_cases cases;
        if ((types >> type & 1u) == 0)
            continue;
        if (schema_expand_goal(c, goal, (enum json_type)type, &cases) != 0)
            return -1;
        for (int i = 0; i < cases.count && *out; i++)
            if (schema_case_is_empty(c, (enum json_type)type, &cases.items[i], out) != 0)
                return -1;
    }
    return 0;
}

int schema_goal_is_empty(struct schema_context *c, const struct schema_goal *goal, bool *out) {
    const struct schema_admission admission = {goal, NUM_TYPES, NULL};
    struct schema_choice choice;
    if (goal->count > 0 && goal_choice(c, goal, &choice)) /* not worth an entry */
        return choice_is_empty(c, &choice, &admission, out);
    struct schema_entry *entry = schema_find_entry(c, goal);
    if (entry == NULL)
        return -1;
    *out = entry->emptiness == EMPTY;
    if (entry->emptiness != UNKNOWN)
        return 0;
    if (c->nesting > 4 * MAX_NESTING) /* not proven, then */
        return 0;
    entry->emptiness = SEARCHING;
    c->nesting++;
    int result = search_emptiness(c, &entry->goal, SCHEMA_ALL_TYPES, out);
    c->nesting--;
    entry->emptiness = *out ? EMPTY : NOT_EMPTY;
    return result;
}

int schema_goal_has_no_text(struct schema_context *c, const struct schema_goal *goal, bool *out) {
    struct schema_entry *entry = schema_find_entry(c, goal);
    unsigned types;
    return entry == NULL || schema_meant_types(c, &entry->goal, &types) != 0
               ? -1
               : search_emptiness(c, &entry->goal, types, out);
}
