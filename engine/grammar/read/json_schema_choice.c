#include "engine/grammar/read/json_schema_choice.h"

#include "engine/grammar/read/json_schema_table.h"
#include "config/json/json_field.h"

#include <stdlib.h>
#include <string.h>

/* --- Given values --- */

const cJSON schema_null = {.type = cJSON_NULL}, schema_true = {.type = cJSON_True},
            schema_false = {.type = cJSON_False};

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

bool schema_goal_choice(const struct schema_context *c, const struct schema_goal *goal,
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

bool schema_case_choice(const struct schema_case *one, struct schema_choice *out) {
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

int schema_case_admits(struct schema_context *c, enum json_type type, const struct schema_case *one,
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
    return admission->goal != NULL
               ? goal_admits(c, admission->goal, value, out)
               : schema_case_admits(c, admission->type, admission->one, value, out);
}

int schema_choice_node(struct schema_context *c, const struct schema_choice *choice,
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

int schema_choice_is_empty(struct schema_context *c, const struct schema_choice *choice,
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
    static const cJSON *const plain[] = {&schema_null, &schema_false, &schema_true};
    const struct schema_admission admission = {NULL, type, one};
    struct schema_choice choice;
    if (schema_case_choice(one, &choice))
        return add_choice(c, list, &choice, &admission);
    list->is_known = list->is_known && (type == NULL_TYPE || type == BOOLEAN);
    for (int i = 0; i < 3; i++) {
        bool is_admitted;
        if (schema_case_admits(c, type, one, plain[i], &is_admitted) != 0 ||
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
    bool has_choice = schema_goal_choice(c, &entry->goal, &choice);
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
