#include "engine/grammar/read/json_schema_names.h"

#include "config/json/json_field.h"

#include <stdlib.h>
#include <string.h>

#define MAX_NAME_BYTES 16384 /* of names that others are kept apart from */

int schema_append_literal(struct schema_context *c, struct schema_literal literal,
                          struct schema_literal **list, int *count, int *capacity) {
    if (*count == *capacity) {
        int room = *capacity > 0 ? 2 * *capacity : 2;
        struct schema_literal *grown = schema_allocate(c, (size_t)room * sizeof(*grown));
        if (grown == NULL)
            return -1;
        if (*count > 0)
            memcpy(grown, *list, (size_t)*count * sizeof(*grown));
        *list = grown;
        *capacity = room;
    }
    (*list)[(*count)++] = literal;
    return 0;
}

bool schema_is_source(const struct remainder *remainder, const cJSON *schema) {
    for (int i = 0; i < remainder->num_sources; i++)
        if (remainder->sources[i] == schema)
            return true;
    return false;
}

/* --- Classes of other names --- */

static int combine(struct object_reader *r, const struct text_automaton *a,
                   const struct text_automaton *b, enum automaton_operation operation,
                   const struct text_automaton **out) {
    struct text_automaton *result;
    struct error error = {0};
    if (text_automaton_combine(a, b, operation, r->c->work, &result, &error) != 0)
        return schema_decline_error(r->c, r->object->path, "patternProperties", &error);
    *out = result;
    return schema_keep_automaton(r->c, NULL, result);
}

static int keep_nodes(struct object_reader *r, struct grammar_builder *builder, grammar_node node,
                      bool minimises, const struct text_automaton **out) {
    struct text_automaton *automaton;
    struct error error = {0};
    if (text_automaton_of_nodes(builder, node, r->c->work, &automaton, &error) != 0)
        return schema_decline_error(r->c, r->object->path, "additionalProperties", &error);
    *out = automaton;
    if (schema_keep_automaton(r->c, NULL, automaton) != 0)
        return -1;
    return minimises && text_automaton_minimise(automaton) != 0 ? api_error_set_memory(r->c->err)
                                                                : 0;
}

/* All strings but the names of the properties. */
static int names_of_others(struct object_reader *r, const struct text_automaton **out) {
    const struct object *o = r->object;
    struct grammar_builder *builder = grammar_builder_create();
    grammar_node *items = malloc(((size_t)o->num_properties + 1) * sizeof(*items));
    const struct text_automaton *all = NULL, *named = NULL;
    size_t bytes = 0;
    int result = 0;
    if (builder == NULL || items == NULL)
        result = api_error_set_memory(r->c->err);
    for (int i = 0; i < o->num_properties && result == 0; i++) {
        size_t length = strlen(o->properties[i].name);
        bytes += length;
        items[i] = grammar_literal(builder, o->properties[i].name, length);
    }
    if (result == 0 && bytes > MAX_NAME_BYTES)
        result = schema_decline(r->c, o->path,
                                "additionalProperties is not supported beside "
                                "properties with so long names");
    if (result == 0) {
        grammar_node any = grammar_characters(builder, NULL, 0, true);
        result = keep_nodes(r, builder, grammar_repeat(builder, any, 0, -1), false, &all);
    }
    if (result == 0)
        result = keep_nodes(r, builder, grammar_alternatives(builder, items, o->num_properties),
                            true, &named);
    grammar_builder_destroy(builder);
    free(items);
    return result == 0 ? combine(r, all, named, AUTOMATON_MINUS, out) : -1;
}

/* Adds what is left of a class as one of its own. */
static int add_class(struct object_reader *r, const struct name_class *from,
                     const struct text_automaton *automaton, uint32_t patterns) {
    struct object *o = r->object;
    if (automaton->num_states == 0)
        return 0;
    if (o->num_classes == OBJECT_MAX_CLASSES)
        return schema_decline(r->c, o->path, "patternProperties overlap in more than %d ways",
                              OBJECT_MAX_CLASSES);
    o->classes[o->num_classes++] =
        (struct name_class){automaton, NULL, 0, 0, from->patterns | patterns};
    return 0;
}

static int split_classes(struct object_reader *r, int index) {
    struct object *o = r->object;
    int count = o->num_classes;
    struct name_class before[OBJECT_MAX_CLASSES];
    memcpy(before, o->classes, sizeof(before));
    o->num_classes = 0;
    for (int i = 0; i < count; i++) {
        const struct text_automaton *pattern = r->patterns[index].automaton, *inside = NULL,
                                    *outside = NULL;
        if (combine(r, before[i].automaton, pattern, AUTOMATON_AND, &inside) != 0 ||
            combine(r, before[i].automaton, pattern, AUTOMATON_MINUS, &outside) != 0 ||
            add_class(r, &before[i], inside, UINT32_C(1) << index) != 0 ||
            add_class(r, &before[i], outside, 0) != 0)
            return -1;
    }
    return 0;
}

/* Fills in what the values of a class must match. *out_none: there can be none. */
static int complete_class(struct object_reader *r, struct name_class *names, bool *out_none) {
    *out_none = r->is_closed && !r->is_opened && names->patterns == 0;
    for (int i = 0; i < r->num_patterns; i++)
        if ((names->patterns >> i & 1u) != 0 &&
            schema_append_literal(r->c, r->patterns[i].literal, &names->literals,
                                  &names->num_literals, &names->literals_capacity) != 0)
            return -1;
    for (int i = 0; i < r->num_remainders; i++) {
        const struct remainder *remainder = &r->remainders[i];
        bool is_covered = false;
        for (int k = 0; k < r->num_patterns; k++)
            is_covered = is_covered || ((names->patterns >> k & 1u) != 0 &&
                                        schema_is_source(remainder, r->patterns[k].source));
        if (!is_covered &&
            schema_append_literal(r->c, remainder->literal, &names->literals, &names->num_literals,
                                  &names->literals_capacity) != 0)
            return -1;
    }
    for (int i = 0; i < names->num_literals; i++)
        *out_none = *out_none || cJSON_IsFalse(names->literals[i].schema);
    return 0;
}

static int complete_classes(struct object_reader *r) {
    struct object *o = r->object;
    int count = 0;
    for (int i = 0; i < o->num_classes; i++) {
        bool has_none;
        if (complete_class(r, &o->classes[i], &has_none) != 0)
            return -1;
        if (!has_none)
            o->classes[count++] = o->classes[i];
    }
    o->num_classes = count;
    return 0;
}

static int read_classes(struct object_reader *r) {
    struct object *o = r->object;
    bool is_cut = o->num_properties > 0 || r->num_patterns > 0 || r->num_names > 0, has_none;
    struct name_class rest = {.automaton = NULL};
    if (complete_class(r, &rest, &has_none) != 0)
        return -1;
    o->num_classes = 0;
    if (has_none && r->num_patterns == 0)
        return 0;
    o->num_classes = 1;
    o->classes[0] = (struct name_class){.automaton = NULL};
    if (is_cut && names_of_others(r, &o->classes[0].automaton) != 0)
        return -1;
    for (int i = 0; i < r->num_names; i++)
        if (combine(r, o->classes[0].automaton, r->names[i], AUTOMATON_AND,
                    &o->classes[0].automaton) != 0)
            return -1;
    for (int i = 0; i < r->num_patterns; i++)
        if (split_classes(r, i) != 0)
            return -1;
    if (is_cut && o->num_classes == 1 && o->classes[0].automaton->num_states == 0)
        o->num_classes = 0;
    return complete_classes(r);
}

/* --- How many there are --- */

static int count_others(struct object_reader *r) {
    struct object *o = r->object;
    int64_t total = 0, count = GRAMMAR_MAX_REPEAT;
    for (int i = 0; i < o->num_classes; i++) {
        const struct text_automaton *automaton = o->classes[i].automaton;
        if (automaton != NULL && text_automaton_count(automaton, GRAMMAR_MAX_REPEAT, &count) != 0)
            return api_error_set_memory(r->c->err);
        total += count;
    }
    o->num_others = total < GRAMMAR_MAX_REPEAT ? (int)total : GRAMMAR_MAX_REPEAT;
    return 0;
}

bool schema_has_too_few(const struct object *o) {
    int count = o->num_others;
    for (int i = 0; i < o->num_properties; i++)
        count += !o->properties[i].is_absent;
    return o->min > count;
}

/* An object that has others only if it must, since no keyword speaks of them, has them then. */
int schema_read_names(struct object_reader *r) {
    struct object *o = r->object;
    if (read_classes(r) != 0 || count_others(r) != 0)
        return -1;
    if (schema_has_too_few(o) && r->is_closed && !r->is_opened) {
        r->is_opened = true;
        if (read_classes(r) != 0 || count_others(r) != 0)
            return -1;
    }
    if (schema_has_too_few(o)) {
        o->is_empty = true;
        schema_note_empty(r->c, o->path, "minProperties is above the number of names there are");
    }
    return 0;
}
