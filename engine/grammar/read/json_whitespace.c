#include "engine/grammar/read/json_whitespace.h"

#include "engine/grammar/read/grammar_regex.h"
#include "engine/grammar/build/text_automaton.h"
#include "config/json/json_field.h"

#include <string.h>

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

static int refuse(const char *path, const char *why, struct api_error *err) {
    return bad_request(err, "unsupported_value", path, "%s is not supported: %s", path, why);
}

static int check_pattern(const cJSON *item, const char *path, struct api_error *err) {
    struct error error = {0};
    bool is_white = false;
    if (!cJSON_IsString(item))
        return json_refuse(item, path, "a string", err);
    if (strlen(item->valuestring) > JSON_WHITESPACE_MAX_PATTERN)
        return bad_request(err, "out_of_range", path, "%s must have at most %d bytes", path,
                           JSON_WHITESPACE_MAX_PATTERN);
    if (is_whitespace(item->valuestring, &is_white, &error) != 0)
        return error.code == ERROR_MEMORY ? api_error_set_memory(err)
                                          : refuse(path, error.message, err);
    if (!is_white)
        return refuse(path,
                      "it matches other characters than JSON has between its tokens, which are "
                      "space, \\t, \\n and \\r",
                      err);
    return 0;
}

int json_whitespace_read(const cJSON *body, const char **out, struct api_error *err) {
    const cJSON *structured = json_given_member(body, "structured_outputs");
    const cJSON *disable = json_given_member(structured, "disable_any_whitespace");
    const cJSON *pattern = json_given_member(structured, "whitespace_pattern");
    const cJSON *guided = json_given_member(body, GUIDED_PATTERN);
    if (disable != NULL && !cJSON_IsBool(disable))
        return json_refuse(disable, DISABLE, "true or false", err);
    bool has_none = cJSON_IsTrue(disable);
    if (pattern != NULL && has_none)
        return refuse(PATTERN, DISABLE " is true", err);
    if (guided != NULL && (pattern != NULL || has_none))
        return refuse(GUIDED_PATTERN, "structured_outputs speaks of white space", err);
    *out = has_none ? "" : NULL;
    if (pattern == NULL && guided == NULL)
        return 0;
    if (check_pattern(pattern != NULL ? pattern : guided,
                      pattern != NULL ? PATTERN : GUIDED_PATTERN, err) != 0)
        return -1;
    *out = (pattern != NULL ? pattern : guided)->valuestring;
    return 0;
}
