/* The properties of an object: what each must match by all keywords that are about it, and the
 * other names, cut into classes by the patterns that they match. */
#include "engine/grammar/read/json_schema_private.h"

#include "config/json/json_field.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- Names of other properties --- */

#define OBJECT_MAX_FACTS 64
#define OBJECT_MAX_PATTERNS 32
#define OBJECT_MAX_SOURCES 64

/* additionalProperties, or unevaluatedProperties: a schema of all properties that some schemas do
 * not name. */
struct remainder {
    struct schema_literal literal;
    const cJSON *sources[OBJECT_MAX_SOURCES]; /* schemas with properties and patternProperties */
    int num_sources;
};

/* A member of patternProperties. */
struct name_pattern {
    const struct text_automaton *automaton;
    const cJSON *item;
    struct schema_literal literal;
    const cJSON *source;
};

struct object_reader {
    struct schema_context *c;
    const struct schema_case *one;
    struct object *object;
    struct remainder *remainders;                         /* [OBJECT_MAX_FACTS] */
    struct name_pattern *patterns;                        /* [OBJECT_MAX_PATTERNS] */
    const struct text_automaton *names[OBJECT_MAX_FACTS]; /* that propertyNames admits */
    int num_remainders, num_patterns, num_names;
    bool is_closed, is_opened;
};

#define MAX_NAME_BYTES 16384 /* of names that others are kept apart from */

static int append_literal(struct schema_context *c, struct schema_literal literal,
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

static bool is_source(const struct remainder *remainder, const cJSON *schema) {
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
                                "additionalProperties is not supported with "
                                "properties whose names are that long");
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

/* Adds the rest of a class as a separate class. */
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
            append_literal(r->c, r->patterns[i].literal, &names->literals, &names->num_literals,
                           &names->literals_capacity) != 0)
            return -1;
    for (int i = 0; i < r->num_remainders; i++) {
        const struct remainder *remainder = &r->remainders[i];
        bool is_covered = false;
        for (int k = 0; k < r->num_patterns; k++)
            is_covered = is_covered || ((names->patterns >> k & 1u) != 0 &&
                                        is_source(remainder, r->patterns[k].source));
        if (!is_covered && append_literal(r->c, remainder->literal, &names->literals,
                                          &names->num_literals, &names->literals_capacity) != 0)
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

/* Returns whether minProperties is above the number of names that are known so far. */
static bool has_too_few(const struct object *o) {
    int count = o->num_others;
    for (int i = 0; i < o->num_properties; i++)
        count += !o->properties[i].is_absent;
    return o->min > count;
}

/* An object that has others only if it must, since no keyword speaks of them, has them then. */
static int read_other_names(struct object_reader *r) {
    struct object *o = r->object;
    if (read_classes(r) != 0 || count_others(r) != 0)
        return -1;
    if (has_too_few(o) && r->is_closed && !r->is_opened) {
        r->is_opened = true;
        if (read_classes(r) != 0 || count_others(r) != 0)
            return -1;
    }
    if (has_too_few(o)) {
        o->is_empty = true;
        schema_note_empty(r->c, o->path, "minProperties is above the number of names there are");
    }
    return 0;
}

static const cJSON nothing_matches = {.type = cJSON_False};

/* --- Lists --- */

static int add_to_property(struct object_reader *r, struct property *property,
                           struct schema_literal literal) {
    return append_literal(r->c, literal, &property->literals, &property->num_literals,
                          &property->literals_capacity);
}

static int add_property(struct object_reader *r, const char *name, int *out) {
    struct object *o = r->object;
    if (o->num_properties == JSON_SCHEMA_MAX_SCHEMAS)
        return schema_decline(r->c, o->path, "there are more than %d properties",
                              JSON_SCHEMA_MAX_SCHEMAS);
    if (o->num_properties == o->properties_capacity) {
        int room = o->properties_capacity > 0 ? 2 * o->properties_capacity : 8;
        struct property *grown = schema_allocate(r->c, (size_t)room * sizeof(*grown));
        if (grown == NULL)
            return -1;
        if (o->num_properties > 0)
            memcpy(grown, o->properties, (size_t)o->num_properties * sizeof(*grown));
        o->properties = grown;
        o->properties_capacity = room;
    }
    *out = o->num_properties++;
    o->properties[*out] = (struct property){.name = name};
    return 0;
}

/* Looks from `first` on, and then before it: names mostly come in the order of the properties. */
static int find_or_add(struct object_reader *r, const char *name, int first, int *out) {
    struct object *o = r->object;
    int steps = 0;
    *out = -1;
    while (*out < 0 && steps < o->num_properties) {
        int i = (first + steps++) % o->num_properties;
        if (strcmp(o->properties[i].name, name) == 0)
            *out = i;
    }
    if (schema_add_steps(r->c, (size_t)steps) != 0)
        return -1;
    return *out >= 0 ? 0 : add_property(r, name, out);
}

/* --- Facts that name properties --- */

static int labelled(struct object_reader *r, const struct schema_fact *fact, const char *key,
                    const cJSON *schema, struct schema_literal *out) {
    char label[96];
    snprintf(label, sizeof(label), "%s.%s", key, schema->string);
    return schema_child(r->c, &fact->of, schema, label, out);
}

static int read_properties(struct object_reader *r, const struct schema_fact *fact) {
    const cJSON *item;
    int i = -1;
    bool is_first = r->object->num_properties == 0; /* and has each name once */
    r->is_closed = true;
    cJSON_ArrayForEach(item, fact->item) {
        struct schema_literal literal;
        if (labelled(r, fact, "properties", item, &literal) != 0 ||
            (is_first ? add_property(r, item->string, &i)
                      : find_or_add(r, item->string, i + 1, &i)) != 0 ||
            add_to_property(r, &r->object->properties[i], literal) != 0)
            return -1;
    }
    return 0;
}

static int require(struct object_reader *r, const char *name, int *i) {
    if (find_or_add(r, name, *i + 1, i) != 0)
        return -1;
    r->object->properties[*i].required = true;
    return 0;
}

static int read_required(struct object_reader *r, const struct schema_fact *fact) {
    const cJSON *item;
    int i = -1;
    cJSON_ArrayForEach(item, fact->item) {
        if (require(r, item->valuestring, &i) != 0)
            return -1;
    }
    return 0;
}

/* Facts that are not keywords. */
static int read_name(struct object_reader *r, const struct schema_fact *fact) {
    struct schema_literal literal = {&nothing_matches, false, fact->of.depth, fact->of.path};
    int i = -1;
    if (fact->kind == FACT_REQUIRED)
        return require(r, fact->name, &i);
    if (fact->kind == FACT_PROPERTY) {
        if (require(r, fact->name, &i) != 0 ||
            labelled(r, fact, "properties", fact->item, &literal) != 0)
            return -1;
        literal.negated = true;
    } else if (find_or_add(r, fact->name, 0, &i) != 0) {
        return -1;
    }
    return add_to_property(r, &r->object->properties[i], literal);
}

/* --- Facts about other names --- */

static int too_many(struct object_reader *r, const struct schema_fact *fact) {
    return schema_decline(r->c, fact->of.path, "too many schemas must match one object");
}

static int read_patterns(struct object_reader *r, const struct schema_fact *fact) {
    const cJSON *item;
    r->is_closed = true;
    if (!cJSON_IsObject(fact->item))
        return schema_refuse(r->c, fact->of.path, "patternProperties must be an object of schemas");
    cJSON_ArrayForEach(item, fact->item) {
        struct name_pattern *pattern = &r->patterns[r->num_patterns];
        if (r->num_patterns == OBJECT_MAX_PATTERNS)
            return schema_decline(r->c, fact->of.path,
                                  "patternProperties has more than %d patterns",
                                  OBJECT_MAX_PATTERNS);
        *pattern = (struct name_pattern){.item = item, .source = fact->of.schema};
        if (labelled(r, fact, "patternProperties", item, &pattern->literal) != 0 ||
            schema_pattern_automaton(r->c, fact->of.path, "patternProperties", item,
                                     &pattern->automaton) != 0)
            return -1;
        r->num_patterns++;
    }
    return 0;
}

static int add_remainder(struct object_reader *r, const struct schema_fact *fact,
                         struct remainder **out) {
    if (r->num_remainders == OBJECT_MAX_FACTS)
        return too_many(r, fact);
    *out = &r->remainders[r->num_remainders++];
    (*out)->num_sources = 0;
    r->is_opened = true;
    return schema_child(r->c, &fact->of, fact->item, fact->item->string, &(*out)->literal);
}

static int read_additional(struct object_reader *r, const struct schema_fact *fact) {
    struct remainder *remainder = NULL;
    if (add_remainder(r, fact, &remainder) != 0)
        return -1;
    remainder->sources[remainder->num_sources++] = fact->of.schema;
    return 0;
}

/* Returns whether a schema can evaluate properties of the object that it is about. */
static bool evaluates(const cJSON *schema, int nesting) {
    static const char *const keys[] = {
        "properties", "patternProperties", "additionalProperties", "unevaluatedProperties",
        "$ref",       "dependentSchemas"};
    static const char *const lists[] = {"allOf", "anyOf", "oneOf"};
    const cJSON *item;
    if (nesting > 32)
        return true;
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        if (json_member(schema, keys[i]) != NULL)
            return true;
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
        cJSON_ArrayForEach(
            item, json_member(schema, lists[i])) if (evaluates(item, nesting + 1)) return true;
    return json_member(schema, "if") != NULL;
}

/* The schemas whose properties count as evaluated for unevaluatedProperties: its own, and those of
 * allOf and $ref. What depends on the value is not supported. *out_all: they evaluate all. */
static int find_sources(struct object_reader *r, const struct schema_fact *fact,
                        const struct schema_literal *of, bool is_own, int nesting,
                        struct remainder *remainder, bool *out_all) {
    static const char *const others[] = {"anyOf", "oneOf"};
    const cJSON *schema = of->schema, *ref = json_member(schema, "$ref"), *item;
    if (nesting > 32)
        return schema_decline_depth(r->c, of->path);
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        cJSON_ArrayForEach(item, json_member(schema, others[i])) {
            if (evaluates(item, 0))
                return schema_decline(r->c, fact->of.path,
                                      "unevaluatedProperties is not supported with %s", others[i]);
        }
    }
    if (json_member(schema, "if") != NULL || json_member(schema, "dependentSchemas") != NULL ||
        json_member(schema, "$dynamicRef") != NULL || json_member(schema, "$recursiveRef") != NULL)
        return schema_decline(r->c, fact->of.path,
                              "unevaluatedProperties is not supported with "
                              "if, dependentSchemas and $dynamicRef");
    *out_all = *out_all || json_member(schema, "additionalProperties") != NULL ||
               (!is_own && json_member(schema, "unevaluatedProperties") != NULL);
    if (remainder->num_sources == OBJECT_MAX_SOURCES)
        return too_many(r, fact);
    remainder->sources[remainder->num_sources++] = schema;
    if (ref != NULL) {
        struct schema_literal target;
        if (schema_resolve(r->c, of->path, ref, &target) != 0 ||
            find_sources(r, fact, &target, false, nesting + 1, remainder, out_all) != 0)
            return -1;
    }
    cJSON_ArrayForEach(item, json_member(schema, "allOf")) {
        struct schema_literal own = *of;
        own.schema = item;
        if (find_sources(r, fact, &own, false, nesting + 1, remainder, out_all) != 0)
            return -1;
    }
    return schema_add_steps(r->c, 4);
}

static int read_unevaluated(struct object_reader *r, const struct schema_fact *fact) {
    struct remainder *remainder = NULL;
    bool evaluates_all = false;
    if (add_remainder(r, fact, &remainder) != 0)
        return -1;
    if (cJSON_IsTrue(fact->item)) /* of all, then */
        return 0;
    if (find_sources(r, fact, &fact->of, true, 0, remainder, &evaluates_all) != 0)
        return -1;
    r->num_remainders -= evaluates_all;
    return 0;
}

static int read_names(struct object_reader *r, const struct schema_fact *fact) {
    struct schema_literal literal;
    const struct schema_goal goal = {&literal, 1};
    if (r->num_names == OBJECT_MAX_FACTS)
        return too_many(r, fact);
    return schema_child(r->c, &fact->of, fact->item, "propertyNames", &literal) != 0
               ? -1
               : schema_goal_strings(r->c, &goal, &r->names[r->num_names++]);
}

static int read_size(struct object_reader *r, const struct schema_fact *fact) {
    struct object *o = r->object;
    bool is_min = strcmp(fact->item->string, "minProperties") == 0;
    int size;
    if (schema_count(r->c, fact, GRAMMAR_MAX_REPEAT - 1, &size) != 0)
        return -1;
    if (fact->of.negated) {
        size += is_min ? -1 : 1;
        is_min = !is_min;
    }
    if (is_min)
        o->min = size > o->min ? size : o->min;
    else if (size < 0)
        o->is_empty = true;
    else
        o->max = o->max < 0 || size < o->max ? size : o->max;
    return 0;
}

static int read_fact(struct object_reader *r, const struct schema_fact *fact) {
    static const struct {
        const char *key;
        int (*read)(struct object_reader *r, const struct schema_fact *fact);
    } keywords[] = {
        {"properties", read_properties},      {"required", read_required},
        {"patternProperties", read_patterns}, {"additionalProperties", read_additional},
        {"propertyNames", read_names},        {"minProperties", read_size},
        {"maxProperties", read_size},         {"unevaluatedProperties", read_unevaluated},
    };
    r->object->path = fact->of.path;
    if (fact->kind != FACT_KEYWORD)
        return read_name(r, fact);
    for (size_t i = 0; i < sizeof(keywords) / sizeof(keywords[0]); i++)
        if (strcmp(fact->item->string, keywords[i].key) == 0)
            return keywords[i].read(r, fact);
    return schema_decline(r->c, fact->of.path, "%s with an object is not supported within not",
                          fact->item->string);
}

/* --- What patterns and remainders say of a named property --- */

static int is_named(struct object_reader *r, const struct remainder *remainder, const char *name,
                    bool *out) {
    *out = false;
    for (int i = 0; i < remainder->num_sources && !*out; i++) {
        const cJSON *found;
        if (schema_find(r->c, json_member(remainder->sources[i], "properties"), name, &found) != 0)
            return -1;
        *out = found != NULL;
    }
    return 0;
}

static int complete_property(struct object_reader *r, struct property *property) {
    const struct text name = {property->name, strlen(property->name)};
    struct schema_literal absent = {&nothing_matches, false, 0, r->object->path};
    uint32_t matched = 0;
    for (int i = 0; i < r->num_patterns; i++) {
        if (!text_automaton_accepts(r->patterns[i].automaton, name))
            continue;
        matched |= UINT32_C(1) << i;
        if (add_to_property(r, property, r->patterns[i].literal) != 0)
            return -1;
    }
    for (int i = 0; i < r->num_remainders; i++) {
        const struct remainder *remainder = &r->remainders[i];
        bool is_covered;
        if (is_named(r, remainder, property->name, &is_covered) != 0)
            return -1;
        for (int k = 0; k < r->num_patterns; k++)
            is_covered = is_covered ||
                         ((matched >> k & 1u) != 0 && is_source(remainder, r->patterns[k].source));
        if (!is_covered && add_to_property(r, property, remainder->literal) != 0)
            return -1;
    }
    for (int i = 0; i < r->num_names; i++)
        if (!text_automaton_accepts(r->names[i], name) && add_to_property(r, property, absent) != 0)
            return -1;
    for (int i = 0; i < property->num_literals; i++) {
        const struct schema_literal *literal = &property->literals[i];
        bool is_bool = cJSON_IsBool(literal->schema);
        property->is_absent =
            property->is_absent || (is_bool && cJSON_IsTrue(literal->schema) == literal->negated);
    }
    return schema_add_steps(r->c, (size_t)(r->num_patterns + r->num_names) * name.length);
}

static int complete_properties(struct object_reader *r) {
    struct object *o = r->object;
    for (int i = 0; i < o->num_properties; i++) {
        if (complete_property(r, &o->properties[i]) != 0)
            return -1;
        if (o->properties[i].is_absent && o->properties[i].required) {
            o->is_empty = true;
            schema_note_empty(r->c, o->path, "required names a property that may not be there");
        }
    }
    return 0;
}

static bool orders(const struct schema_fact *fact) {
    return fact->kind == FACT_KEYWORD && strcmp(fact->item->string, "properties") == 0;
}

int schema_read_object(struct schema_context *c, const struct schema_case *one, bool classes,
                       struct object *out) {
    struct object_reader r = {.c = c, .one = one, .object = out};
    *out = (struct object){.max = -1, .path = c->path};
    r.remainders = malloc(OBJECT_MAX_FACTS * sizeof(*r.remainders));
    r.patterns = malloc(OBJECT_MAX_PATTERNS * sizeof(*r.patterns));
    int result = r.remainders != NULL && r.patterns != NULL ? 0 : api_error_set_memory(c->err);
    for (int i = 0; i < one->count && result == 0;
         i++) /* these decide the order, not other names */
        if (orders(one->facts[i]))
            result = read_fact(&r, one->facts[i]);
    for (int i = 0; i < one->count && result == 0; i++)
        if (!orders(one->facts[i]))
            result = read_fact(&r, one->facts[i]);
    if (result == 0)
        result = complete_properties(&r);
    if (result == 0 && out->max >= 0 && out->min > out->max) {
        out->is_empty = true;
        schema_note_empty(c, out->path, "maxProperties is below minProperties");
    }
    if (result == 0 && !out->is_empty && (classes || has_too_few(out)))
        result = read_other_names(&r);
    free(r.remainders);
    free(r.patterns);
    return result;
}
