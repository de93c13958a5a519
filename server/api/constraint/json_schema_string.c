#include "server/api/constraint/json_schema_private.h"

#include "engine/grammar/grammar_regex.h"

#include <string.h>

/* Only days that every parser takes: February has 28. */
#define DATE                                                                                       \
    "[12]\\d{3}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|"                                   \
    "(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|02-(?:0[1-9]|1\\d|2[0-8]))"
#define TIME "(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,6})?"
#define ZONE "(?:Z|[+-](?:0\\d|1[0-4]):[0-5]\\d)"
#define BYTE "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"

static const struct {
    const char *name, *pattern;
} formats[] = {
    {"date-time", "^" DATE "T" TIME ZONE "$"},
    {"date", "^" DATE "$"},
    {"time", "^" TIME ZONE "$"},
    {"uuid", "^[0-9a-f]{8}-[0-9a-f]{4}-[1-5][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$"},
    {"email", "^[A-Za-z0-9_+-]{1,16}(?:\\.[A-Za-z0-9_+-]{1,16}){0,2}@"
              "(?:[a-z0-9](?:[a-z0-9-]{0,14}[a-z0-9])?\\.){1,3}[a-z]{2,6}$"},
    {"ipv4", "^" BYTE "\\." BYTE "\\." BYTE "\\." BYTE "$"},
};

static const char *format_pattern(const char *name) {
    for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++)
        if (strcmp(formats[i].name, name) == 0)
            return formats[i].pattern;
    return NULL;
}

static int of_pattern(struct schema_context *c, const char *key, const char *pattern,
                      grammar_node *out) {
    struct error error = {0};
    if (grammar_regex(c->builder, pattern, REGEX_JSON_STRING, out, &error) == 0)
        return 0;
    if (error.code == ERROR_MEMORY)
        return api_error_set_memory(c->err);
    return schema_decline(c, "%s is not a pattern that is supported: %s", key, error.message);
}

/* The pattern of `pattern` or `format`, whose key is *out_key; NULL: neither is there. */
static int find_pattern(struct schema_context *c, const cJSON *schema, const char **out_key,
                        const char **out) {
    const cJSON *pattern = cJSON_GetObjectItemCaseSensitive(schema, "pattern");
    const cJSON *format = cJSON_GetObjectItemCaseSensitive(schema, "format");
    if ((pattern != NULL && !cJSON_IsString(pattern)) ||
        (format != NULL && !cJSON_IsString(format)))
        return schema_refuse(c, "pattern and format must be strings");
    *out_key = pattern != NULL ? "pattern" : "format";
    *out = pattern != NULL  ? pattern->valuestring
           : format != NULL ? format_pattern(format->valuestring)
                            : NULL;
    if (format != NULL && (pattern != NULL || *out == NULL))
        return schema_unsupported(c, "format",
                                  pattern != NULL ? "beside pattern" : "with this value");
    return 0;
}

int schema_string(struct schema_context *c, const cJSON *schema, grammar_node *out) {
    const char *key = NULL, *pattern = NULL;
    int min, max;
    grammar_node content;
    if (find_pattern(c, schema, &key, &pattern) != 0 ||
        schema_count(c, schema, "minLength", 0, GRAMMAR_MAX_REPEAT, &min) != 0 ||
        schema_count(c, schema, "maxLength", -1, GRAMMAR_MAX_REPEAT, &max) != 0)
        return -1;
    if (max >= 0 && max < min)
        return schema_decline(c, "maxLength is below minLength");
    bool has_length = min > 0 || max >= 0;
    if (pattern != NULL && has_length &&
        schema_unsupported(c, max >= 0 ? "maxLength" : "minLength", "beside pattern or format") !=
            0)
        return -1;
    if (pattern == NULL && !has_length) {
        *out = schema_any_string(c);
        return 0;
    }
    if (pattern == NULL)
        content = grammar_repeat(c->builder, schema_character(c), min, max);
    else if (of_pattern(c, key, pattern, &content) != 0)
        return -1;
    grammar_node quote = schema_text(c, "\"");
    *out = schema_sequence(c, (grammar_node[]){quote, content, quote}, 3);
    return 0;
}
