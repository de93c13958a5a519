#include "engine/grammar/read/json_schema_private.h"

#include "engine/grammar/build/character_class.h"
#include "engine/grammar/build/text_automaton.h"
#include "engine/grammar/read/grammar_regex.h"
#include "config/json/json_field.h"
#include "config/json/json_write.h"

#include <stdlib.h>
#include <string.h>

grammar_node schema_sequence(struct schema_context *c, const grammar_node *items, int count) {
    return grammar_sequence(c->builder, items, count);
}

grammar_node schema_text(struct schema_context *c, const char *text) {
    return grammar_literal(c->builder, text, strlen(text));
}

/* The regex is one of ours, or white space that was read. */
static grammar_node regex(struct schema_context *c, const char *pattern) {
    grammar_node node = GRAMMAR_FAILED;
    grammar_regex(c->builder, pattern, REGEX_TEXT, &node, NULL);
    return node;
}

static grammar_node keep(grammar_node *piece, grammar_node node) {
    return *piece = node;
}

/* --- White space: every token except the last is followed by its own --- */

static bool has_gaps(const struct schema_context *c) {
    return c->whitespace != NULL && c->whitespace[0] != '\0';
}

static grammar_node gap(struct schema_context *c) {
    return c->pieces.gap >= 0 ? c->pieces.gap : keep(&c->pieces.gap, regex(c, c->whitespace));
}

grammar_node schema_colon(struct schema_context *c) {
    if (c->pieces.colon >= 0)
        return c->pieces.colon;
    if (!has_gaps(c))
        return keep(&c->pieces.colon, regex(c, c->whitespace == NULL ? ": ?" : ":"));
    grammar_node items[] = {gap(c), schema_text(c, ":"), gap(c)};
    return keep(&c->pieces.colon, schema_sequence(c, items, 3));
}

grammar_node schema_comma(struct schema_context *c) {
    if (c->pieces.comma >= 0)
        return c->pieces.comma;
    if (!has_gaps(c))
        return keep(&c->pieces.comma, regex(c, c->whitespace == NULL ? ", ?" : ","));
    return keep(&c->pieces.comma, schema_inner(c, schema_text(c, ",")));
}

grammar_node schema_open(struct schema_context *c, const char *bracket) {
    return schema_inner(c, schema_text(c, bracket));
}

grammar_node schema_open_names(struct schema_context *c) {
    return schema_inner(c, grammar_open_object(c->builder));
}

grammar_node schema_inner(struct schema_context *c, grammar_node value) {
    return has_gaps(c) ? schema_sequence(c, (grammar_node[]){value, gap(c)}, 2) : value;
}

grammar_node schema_character(struct schema_context *c) {
    if (c->pieces.character >= 0)
        return c->pieces.character;
    return keep(&c->pieces.character, character_class_json(c->builder));
}

grammar_node schema_any_string(struct schema_context *c) {
    if (c->pieces.string >= 0)
        return c->pieces.string;
    grammar_node quote = schema_text(c, "\"");
    grammar_node items[] = {quote, grammar_repeat(c->builder, schema_character(c), 0, -1), quote};
    return keep(&c->pieces.string, schema_sequence(c, items, 3));
}

grammar_node schema_nothing(struct schema_context *c) {
    if (c->pieces.nothing >= 0)
        return c->pieces.nothing;
    c->pieces.nothing = grammar_rule(c->builder);
    if (c->pieces.nothing < 0)
        return GRAMMAR_FAILED;
    grammar_node items[] = {schema_text(c, "-"), c->pieces.nothing}; /* no end */
    grammar_define(c->builder, c->pieces.nothing, schema_sequence(c, items, 2));
    return c->pieces.nothing;
}

/* What a double holds, all 17 digits, and integers of 64 bits; bounded, so that a model cannot
 * write digits forever, and finite as a double. */
grammar_node schema_any_number(struct schema_context *c) {
    if (c->pieces.number >= 0)
        return c->pieces.number;
    return keep(&c->pieces.number,
                regex(c, "-?(?:(?:0|[1-9]\\d{0,19})(?:\\.\\d{1,22})?"
                         "(?:[eE](?:\\+?(?:1?\\d{1,2}|2[0-7]\\d)|-\\d{1,3}))?"
                         "|[1-9](?:\\.\\d{1,22})?[eE]\\+?(?:2[89]\\d|30[0-7]))"));
}

/* open (item (comma item)*)? close */
static grammar_node list_of(struct schema_context *c, grammar_node open, grammar_node item,
                            const char *close) {
    item = schema_inner(c, item);
    grammar_node more[] = {schema_comma(c), item};
    grammar_node items[] = {item, grammar_repeat(c->builder, schema_sequence(c, more, 2), 0, -1)};
    grammar_node all[] = {open, grammar_repeat(c->builder, schema_sequence(c, items, 2), 0, 1),
                          schema_text(c, close)};
    return schema_sequence(c, all, 3);
}

grammar_node schema_any_object(struct schema_context *c) {
    if (c->pieces.any_object >= 0)
        return c->pieces.any_object;
    grammar_node value = schema_any_value(c); /* makes this one on its way */
    if (c->pieces.any_object >= 0 || value < 0)
        return c->pieces.any_object;
    grammar_node member[] = {schema_any_string(c), schema_colon(c), value};
    return keep(&c->pieces.any_object,
                list_of(c, schema_open_names(c), schema_sequence(c, member, 3), "}"));
}

grammar_node schema_any_array(struct schema_context *c) {
    if (c->pieces.any_array >= 0)
        return c->pieces.any_array;
    grammar_node value = schema_any_value(c);
    if (c->pieces.any_array >= 0 || value < 0)
        return c->pieces.any_array;
    return keep(&c->pieces.any_array, list_of(c, schema_open(c, "["), value, "]"));
}

grammar_node schema_any_value(struct schema_context *c) {
    if (c->pieces.value >= 0)
        return c->pieces.value;
    c->pieces.value = grammar_rule(c->builder);
    if (c->pieces.value < 0)
        return GRAMMAR_FAILED;
    grammar_node items[] = {schema_any_string(c),  schema_any_number(c),   schema_any_object(c),
                            schema_any_array(c),   schema_text(c, "true"), schema_text(c, "false"),
                            schema_text(c, "null")};
    grammar_define(c->builder, c->pieces.value, grammar_alternatives(c->builder, items, 7));
    return c->pieces.value;
}

/* --- Given values --- */

static int no_memory(struct schema_context *c) {
    return api_error_set_memory(c->err);
}

int schema_quoted(struct schema_context *c, const char *text, grammar_node *out) {
    struct byte_buffer buffer = {0};
    json_write_string(&buffer, text, strlen(text));
    if (!buffer.failed)
        *out = grammar_literal(c->builder, buffer.data, buffer.length);
    bool failed = buffer.failed;
    byte_buffer_finish(&buffer);
    return failed ? no_memory(c) : 0;
}

static int number_literal(struct schema_context *c, const cJSON *value, grammar_node *out) {
    struct byte_buffer text = {0};
    json_write_tree(&text, value);
    if (!text.failed)
        *out = grammar_literal(c->builder, text.data, text.length);
    bool failed = text.failed;
    byte_buffer_finish(&text);
    return failed ? no_memory(c) : 0;
}

/* The body was at most JSON_MAX_DEPTH deep. */
static int list_literal(struct schema_context *c, const cJSON *value, grammar_node *out) {
    bool is_object = cJSON_IsObject(value);
    size_t count = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, value) count++;
    grammar_node *nodes = malloc((4 * count + 2) * sizeof(*nodes));
    if (nodes == NULL)
        return no_memory(c);
    int num_nodes = 0, result = 0;
    nodes[num_nodes++] = schema_open(c, is_object ? "{" : "[");
    cJSON_ArrayForEach(item, value) {
        if (num_nodes > 1)
            nodes[num_nodes++] = schema_comma(c);
        if (is_object) {
            result = schema_quoted(c, item->string, &nodes[num_nodes++]);
            nodes[num_nodes++] = schema_colon(c);
        }
        if (result == 0)
            result = schema_literal(c, item, &nodes[num_nodes]);
        if (result != 0)
            break;
        nodes[num_nodes] = schema_inner(c, nodes[num_nodes]);
        num_nodes++;
    }
    nodes[num_nodes++] = schema_text(c, is_object ? "}" : "]");
    if (result == 0)
        *out = schema_sequence(c, nodes, num_nodes);
    free(nodes);
    return result;
}

int schema_literal(struct schema_context *c, const cJSON *value, grammar_node *out) {
    if (schema_count_one(c, c->path, "values") != 0)
        return -1;
    if (cJSON_IsString(value))
        return schema_quoted(c, value->valuestring, out);
    if (cJSON_IsNumber(value))
        return number_literal(c, value, out);
    if (cJSON_IsArray(value) || cJSON_IsObject(value))
        return list_literal(c, value, out);
    *out = schema_text(c, cJSON_IsTrue(value) ? "true" : cJSON_IsFalse(value) ? "false" : "null");
    return 0;
}

/* --- White space --- */

#define DISABLE "structured_outputs.disable_any_whitespace"
#define PATTERN "structured_outputs.whitespace_pattern"
#define GUIDED_PATTERN "guided_whitespace_pattern"

static int automaton_of(const char *pattern, int64_t *budget, struct text_automaton **out,
                        struct error *error) {
    struct grammar_builder *builder = grammar_builder_create();
    grammar_node root;
    int result = -1;
    if (builder == NULL)
        error_set(error, ERROR_MEMORY, "memory is short");
    else if (grammar_regex(builder, pattern, REGEX_TEXT, &root, error) == 0)
        result = text_automaton_of_nodes(builder, root, budget, out, error);
    grammar_builder_destroy(builder);
    return result;
}

/* *out: every text of the pattern is white space of JSON (RFC 8259, section 2). */
static int is_whitespace(const char *pattern, bool *out, struct error *error) {
    struct text_automaton *texts = NULL, *white = NULL, *others = NULL;
    int64_t budget = GRAMMAR_MAX_WORK;
    int result = -1;
    if (automaton_of(pattern, &budget, &texts, error) == 0 &&
        automaton_of("[ \\t\\n\\r]*", &budget, &white, error) == 0)
        result = text_automaton_combine(texts, white, AUTOMATON_MINUS, &budget, &others, error);
    if (result == 0)
        *out = others->num_states == 0;
    text_automaton_destroy(texts);
    text_automaton_destroy(white);
    text_automaton_destroy(others);
    return result;
}

static int refuse_whitespace(const char *path, const char *why, struct api_error *err) {
    return bad_request(err, "unsupported_value", path, "%s is not supported: %s", path, why);
}

static int check_pattern(const cJSON *item, const char *path, struct api_error *err) {
    struct error error = {0};
    bool is_white = false;
    if (!cJSON_IsString(item))
        return json_refuse(item, path, "a string", err);
    if (strlen(item->valuestring) > JSON_SCHEMA_MAX_WHITESPACE)
        return bad_request(err, "out_of_range", path, "%s must have at most %d bytes", path,
                           JSON_SCHEMA_MAX_WHITESPACE);
    if (is_whitespace(item->valuestring, &is_white, &error) != 0)
        return error.code == ERROR_MEMORY ? api_error_set_memory(err)
                                          : refuse_whitespace(path, error.message, err);
    if (!is_white)
        return refuse_whitespace(
            path,
            "it matches other characters than JSON has between its tokens, which are "
            "space, \\t, \\n and \\r",
            err);
    return 0;
}

int json_schema_whitespace(const cJSON *body, const char **out, struct api_error *err) {
    const cJSON *structured = json_given_member(body, "structured_outputs");
    const cJSON *disable = json_given_member(structured, "disable_any_whitespace");
    const cJSON *pattern = json_given_member(structured, "whitespace_pattern");
    const cJSON *guided = json_given_member(body, GUIDED_PATTERN);
    if (disable != NULL && !cJSON_IsBool(disable))
        return json_refuse(disable, DISABLE, "true or false", err);
    bool has_none = cJSON_IsTrue(disable);
    if (pattern != NULL && has_none)
        return refuse_whitespace(PATTERN, DISABLE " is true", err);
    if (guided != NULL && (pattern != NULL || has_none))
        return refuse_whitespace(GUIDED_PATTERN, "structured_outputs speaks of white space", err);
    *out = has_none ? "" : NULL;
    if (pattern == NULL && guided == NULL)
        return 0;
    if (check_pattern(pattern != NULL ? pattern : guided,
                      pattern != NULL ? PATTERN : GUIDED_PATTERN, err) != 0)
        return -1;
    *out = (pattern != NULL ? pattern : guided)->valuestring;
    return 0;
}
