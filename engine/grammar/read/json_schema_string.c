/* Strings. A length alone is a repetition, one pattern alone the nodes of its regular expression;
 * all else is computed with automata: a string that matches every pattern and none of the negated
 * ones, and has the length. */
#include "engine/grammar/read/json_schema_private.h"

#include "engine/grammar/read/grammar_regex.h"

#include <stdlib.h>
#include <string.h>

/* --- Automata of keywords --- */

struct cached_automaton {
    struct cached_automaton *next;
    const cJSON *item; /* NULL: none that is looked up */
    struct text_automaton *automaton;
};

int schema_keep_automaton(struct schema_context *c, const cJSON *item,
                          struct text_automaton *automaton) {
    struct cached_automaton *entry = malloc(sizeof(*entry));
    if (entry == NULL) {
        text_automaton_destroy(automaton);
        return api_error_set_memory(c->err);
    }
    *entry = (struct cached_automaton){c->automata, item, automaton};
    c->automata = entry;
    return 0;
}

void schema_forget_automata(struct schema_context *c) {
    while (c->automata != NULL) {
        struct cached_automaton *next = c->automata->next;
        text_automaton_destroy(c->automata->automaton);
        free(c->automata);
        c->automata = next;
    }
}

/* What text_automaton_of_nodes makes of the nodes that `write` adds to a builder of their own. */
static int automaton_of(struct schema_context *c, const char *path, const char *key,
                        const cJSON *item,
                        int (*write)(struct grammar_builder *builder, const void *context,
                                     grammar_node *out, struct error *err),
                        const void *context, const struct text_automaton **out) {
    struct grammar_builder *builder = grammar_builder_create();
    struct text_automaton *automaton;
    struct error error = {0};
    grammar_node node;
    if (builder == NULL)
        return api_error_set_memory(c->err);
    int result = write(builder, context, &node, &error);
    if (result == 0)
        result = text_automaton_of_nodes(builder, node, c->work, &automaton, &error);
    grammar_builder_destroy(builder);
    if (result != 0)
        return schema_decline_error(c, path, key, &error);
    *out = automaton;
    return schema_keep_automaton(c, item, automaton);
}

static int write_pattern(struct grammar_builder *builder, const void *context, grammar_node *out,
                         struct error *err) {
    return grammar_regex(builder, context, REGEX_SEARCH, out, err);
}

/* The pattern of a keyword: of patternProperties its member's name. */
static int find_pattern(struct schema_context *c, const char *path, const char *key,
                        const cJSON *item, const char **out) {
    if (strcmp(key, "patternProperties") == 0)
        *out = item->string;
    else if (!cJSON_IsString(item))
        return schema_refuse(c, path, "pattern and format must be strings");
    else if (strcmp(key, "format") == 0)
        *out = schema_format_pattern(item->valuestring);
    else
        *out = item->valuestring;
    if (*out == NULL)
        return schema_decline(c, path, "format is not supported with the value %.40s",
                              item->valuestring);
    return 0;
}

int schema_pattern_automaton(struct schema_context *c, const char *path, const char *key,
                             const cJSON *item, const struct text_automaton **out) {
    const char *pattern;
    size_t steps = 1;
    for (const struct cached_automaton *entry = c->automata; entry != NULL; entry = entry->next) {
        steps++;
        if (entry->item == item) {
            *out = entry->automaton;
            return schema_add_steps(c, steps);
        }
    }
    if (schema_add_steps(c, steps) != 0 || find_pattern(c, path, key, item, &pattern) != 0)
        return -1;
    return automaton_of(c, path, key, item, write_pattern, pattern, out);
}

int schema_pattern_is_unknown(struct schema_context *c, const char *pattern, bool *out) {
    struct grammar_builder *builder = grammar_builder_create();
    struct error error = {0};
    grammar_node node;
    if (builder == NULL)
        return api_error_set_memory(c->err);
    *out = grammar_regex(builder, pattern, REGEX_JSON_STRING, &node, &error) != 0;
    grammar_builder_destroy(builder);
    if (*out && error.code == ERROR_MEMORY)
        return api_error_set_memory(c->err);
    return schema_add_steps(c, strlen(pattern));
}

struct length {
    int min, max; /* max < 0: no end */
};

static int write_length(struct grammar_builder *builder, const void *context, grammar_node *out,
                        struct error *err) {
    const struct length *length = context;
    *out = grammar_repeat(builder, grammar_characters(builder, NULL, 0, true), length->min,
                          length->max);
    return 0;
}

/* The strings of an enum, or the one of a const. */
static int write_values(struct grammar_builder *builder, const void *context, grammar_node *out,
                        struct error *err) {
    const cJSON *item = context, *value = cJSON_IsArray(item) ? item->child : item;
    int count = 0;
    grammar_node *nodes = malloc(((size_t)cJSON_GetArraySize(item) + 1) * sizeof(*nodes));
    if (nodes == NULL)
        return error_set(err, ERROR_MEMORY, "memory is short");
    for (; value != NULL; value = cJSON_IsArray(item) ? value->next : NULL)
        if (cJSON_IsString(value))
            nodes[count++] =
                grammar_literal(builder, value->valuestring, strlen(value->valuestring));
    *out = grammar_alternatives(builder, nodes, count);
    free(nodes);
    return 0;
}

/* --- Facts --- */

/* What a case says of a string. */
struct string {
    struct length length;
    const struct schema_fact *patterns[64]; /* patterns and formats, and values that it is not */
    int num_patterns;
    const char *path;
};

static bool has_length(const struct string *s) {
    return s->length.min > 0 || s->length.max >= 0;
}

/* minLength and maxLength; the opposite of one is the other. */
static int read_length(struct schema_context *c, const struct schema_fact *fact,
                       struct length *length) {
    int bound, max = GRAMMAR_MAX_REPEAT - 1;
    bool is_min = strcmp(fact->item->string, "minLength") == 0;
    if (schema_count(c, fact, max, &bound) != 0)
        return -1;
    if (fact->of.negated) {
        bound += is_min ? -1 : 1;
        is_min = !is_min;
    }
    if (is_min && bound > length->min)
        length->min = bound;
    if (!is_min && bound < 0) /* shorter than nothing */
        *length = (struct length){1, 0};
    else if (!is_min && (length->max < 0 || bound < length->max))
        length->max = bound;
    return 0;
}

static int read_string(struct schema_context *c, const struct schema_case *one,
                       struct string *out) {
    *out = (struct string){.length = {0, -1}};
    for (int i = 0; i < one->count; i++) {
        const struct schema_fact *fact = one->facts[i];
        const char *key = fact->item->string;
        out->path = fact->of.path;
        if (strcmp(key, "minLength") == 0 || strcmp(key, "maxLength") == 0) {
            if (read_length(c, fact, &out->length) != 0)
                return -1;
        } else if (out->num_patterns == 64) {
            return schema_decline(c, fact->of.path, "too many patterns must match one string");
        } else {
            out->patterns[out->num_patterns++] = fact;
        }
    }
    return 0;
}

static int fact_automaton(struct schema_context *c, const struct schema_fact *fact,
                          const struct text_automaton **out) {
    const char *key = fact->item->string;
    if (strcmp(key, "pattern") == 0 || strcmp(key, "format") == 0)
        return schema_pattern_automaton(c, fact->of.path, key, fact->item, out);
    return automaton_of(c, fact->of.path, key, NULL, write_values, fact->item, out);
}

static int combine(struct schema_context *c, const char *path, const char *key,
                   const struct text_automaton **into, const struct text_automaton *other,
                   enum automaton_operation operation) {
    struct text_automaton *result;
    struct error error = {0};
    if (text_automaton_combine(*into, other, operation, c->work, &result, &error) != 0)
        return schema_decline_error(c, path, key, &error);
    *into = result;
    return schema_keep_automaton(c, NULL, result);
}

static int string_automaton(struct schema_context *c, const struct string *s,
                            const struct text_automaton **out) {
    struct length length = s->length;
    if (length.max >= 0 && length.max < length.min) {
        length = (struct length){1, 1}; /* and nothing is left of it */
        if (automaton_of(c, s->path, "maxLength", NULL, write_length, &length, out) != 0)
            return -1;
        return combine(c, s->path, "maxLength", out, *out, AUTOMATON_MINUS);
    }
    if (automaton_of(c, s->path, length.max >= 0 ? "maxLength" : "minLength", NULL, write_length,
                     &length, out) != 0)
        return -1;
    for (int i = 0; i < s->num_patterns; i++) {
        const struct schema_fact *fact = s->patterns[i];
        const struct text_automaton *own;
        if (fact_automaton(c, fact, &own) != 0 ||
            combine(c, fact->of.path, fact->item->string, out, own,
                    fact->of.negated ? AUTOMATON_MINUS : AUTOMATON_AND) != 0)
            return -1;
    }
    return 0;
}

/* --- Nodes --- */

static int node_of_regex(struct schema_context *c, const struct schema_fact *fact,
                         grammar_node *out) {
    struct error error = {0};
    const char *pattern, *key = fact->item->string;
    grammar_node quote = schema_text(c, "\""), content;
    if (find_pattern(c, fact->of.path, key, fact->item, &pattern) != 0)
        return -1;
    if (grammar_regex(c->builder, pattern, REGEX_JSON_STRING, &content, &error) != 0) {
        if (error.code == ERROR_MEMORY)
            return api_error_set_memory(c->err);
        return schema_decline(c, fact->of.path, "%s is not a pattern that is supported: %s", key,
                              error.message);
    }
    *out = schema_sequence(c, (grammar_node[]){quote, content, quote}, 3);
    return 0;
}

static int node_of_automaton(struct schema_context *c, const struct string *s, grammar_node *out) {
    const struct text_automaton *automaton;
    struct error error = {0};
    grammar_node content;
    if (string_automaton(c, s, &automaton) != 0)
        return -1;
    if (automaton->num_states == 0) {
        *out = schema_nothing(c);
        return 0;
    }
    if (text_automaton_write(automaton, c->builder, AUTOMATON_JSON_STRING, &content, &error) != 0)
        return schema_decline_error(c, s->path, "pattern", &error);
    *out = schema_sequence(c, (grammar_node[]){schema_text(c, "\""), content}, 2);
    return 0;
}

static bool is_plain_pattern(const struct string *s) {
    const struct schema_fact *fact = s->patterns[0];
    return s->num_patterns == 1 && !has_length(s) && !fact->of.negated &&
           (strcmp(fact->item->string, "pattern") == 0 ||
            strcmp(fact->item->string, "format") == 0);
}

int schema_string(struct schema_context *c, const struct schema_case *one, grammar_node *out) {
    struct string s;
    if (read_string(c, one, &s) != 0)
        return -1;
    if (is_plain_pattern(&s))
        return node_of_regex(c, s.patterns[0], out);
    if (s.num_patterns > 0)
        return node_of_automaton(c, &s, out);
    if (s.length.max >= 0 && s.length.max < s.length.min) {
        *out = schema_nothing(c);
        return 0;
    }
    grammar_node quote = schema_text(c, "\"");
    grammar_node content =
        grammar_repeat(c->builder, schema_character(c), s.length.min, s.length.max);
    *out = schema_sequence(c, (grammar_node[]){quote, content, quote}, 3);
    return 0;
}

/* One pattern alone is taken to match something: its nodes tell. */
int schema_string_is_empty(struct schema_context *c, const struct schema_case *one, bool *out) {
    struct string s;
    const struct text_automaton *automaton;
    if (read_string(c, one, &s) != 0)
        return -1;
    *out = s.length.max >= 0 && s.length.max < s.length.min;
    if (!*out && s.num_patterns > 0 && !is_plain_pattern(&s)) {
        if (string_automaton(c, &s, &automaton) != 0)
            return -1;
        *out = automaton->num_states == 0;
    }
    if (*out && has_length(&s))
        schema_note_empty(c, s.path, "no string matches: see maxLength and minLength");
    return 0;
}

/* --- All strings of a goal --- */

static int strings_of_case(struct schema_context *c, const struct schema_case *one,
                           const struct text_automaton **out) {
    struct string s;
    struct schema_case others = {schema_allocate(c, ((size_t)one->count + 1) * sizeof(void *)), 0};
    if (others.facts == NULL)
        return -1;
    const struct schema_fact *values[8];
    int num_values = 0;
    for (int i = 0; i < one->count; i++) {
        const char *key = one->facts[i]->item->string;
        bool has_values =
            (strcmp(key, "enum") == 0 || strcmp(key, "const") == 0) && !one->facts[i]->of.negated;
        if (has_values && num_values < 8)
            values[num_values++] = one->facts[i];
        else
            others.facts[others.count++] = one->facts[i];
    }
    if (read_string(c, &others, &s) != 0)
        return -1;
    s.path = one->count > 0 ? one->facts[0]->of.path : c->path;
    if (string_automaton(c, &s, out) != 0)
        return -1;
    for (int i = 0; i < num_values; i++) {
        const struct text_automaton *own;
        if (fact_automaton(c, values[i], &own) != 0 ||
            combine(c, s.path, values[i]->item->string, out, own, AUTOMATON_AND) != 0)
            return -1;
    }
    return 0;
}

int schema_goal_strings(struct schema_context *c, const struct schema_goal *goal,
                        const struct text_automaton **out) {
    struct schema_cases cases;
    const char *path = goal->count > 0 ? goal->literals[0].path : c->path;
    const struct string none = {.length = {1, 0}, .path = path};
    if (schema_expand_goal(c, goal, STRING, &cases) != 0 || string_automaton(c, &none, out) != 0)
        return -1;
    for (int i = 0; i < cases.count; i++) {
        const struct text_automaton *own;
        if (strings_of_case(c, &cases.items[i], &own) != 0 ||
            combine(c, path, "propertyNames", out, own, AUTOMATON_OR) != 0)
            return -1;
    }
    return 0;
}
