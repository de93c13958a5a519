#include "engine/grammar/read/json_schema_private.h"

#include "config/json/json_field.h"

#include <math.h>
#include <stdalign.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- Errors --- */

enum schema_error { SCHEMA_INVALID, SCHEMA_UNSUPPORTED, SCHEMA_TOO_DEEP };

static const char *const codes[] = {[SCHEMA_INVALID] = "invalid_json_schema",
                                    [SCHEMA_UNSUPPORTED] = "unsupported_json_schema",
                                    [SCHEMA_TOO_DEEP] = "schema_too_deep"};

static bool is_error(const struct api_error *err, enum schema_error error) {
    return err->code != NULL && strcmp(err->code, codes[error]) == 0;
}

bool json_schema_is_unsupported(const struct api_error *err) {
    return is_error(err, SCHEMA_UNSUPPORTED) || is_error(err, SCHEMA_TOO_DEEP);
}

static int refuse(struct schema_context *c, const char *path, enum schema_error error,
                  const char *format, va_list args) __attribute__((format(printf, 4, 0)));

static int refuse(struct schema_context *c, const char *path, enum schema_error error,
                  const char *format, va_list args) {
    char text[256];
    vsnprintf(text, sizeof(text), format, args);
    return bad_request(c->err, codes[error], path, "%.200s: %s", path, text);
}

int schema_refuse(struct schema_context *c, const char *path, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int result = refuse(c, path, SCHEMA_INVALID, format, args);
    va_end(args);
    return result;
}

int schema_decline(struct schema_context *c, const char *path, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int result = refuse(c, path, SCHEMA_UNSUPPORTED, format, args);
    va_end(args);
    return result;
}

int schema_decline_error(struct schema_context *c, const char *path, const char *key,
                         const struct error *error) {
    if (error->code == ERROR_MEMORY)
        return api_error_set_memory(c->err);
    return schema_decline(c, path, "%.48s is not supported here: %s", key, error->message);
}

int schema_decline_depth(struct schema_context *c, const char *path) {
    return bad_request(c->err, codes[SCHEMA_TOO_DEEP], path,
                       "%.200s: the JSON schema is nested deeper than %d, or refers to itself",
                       path, JSON_SCHEMA_MAX_DEPTH);
}

/* Returns whether the names, separated by commas, have this one. */
static bool has_name(const struct byte_buffer *names, const struct byte_buffer *name) {
    const char *at = names->data, *end = names->data + names->length;
    while (at < end) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        size_t length = (size_t)((comma != NULL ? comma : end) - at);
        if (length == name->length && memcmp(at, name->data, length) == 0)
            return true;
        at += length + 1;
    }
    return false;
}

bool schema_ignores(struct schema_context *c, const char *path, const char *key) {
    struct byte_buffer *names = grammar_builder_ignored(c->builder), name = {0};
    char text[SCHEMA_MAX_PATH + 64];
    if (names == NULL)
        return false;
    snprintf(text, sizeof(text), "%s.%.60s", path, key);
    json_fields_append_name(text, "", &name);
    if (name.failed)
        names->failed = true;
    else if (!has_name(names, &name))
        json_fields_append_name(text, "", names);
    byte_buffer_finish(&name);
    return true;
}

void schema_note_empty(struct schema_context *c, const char *path, const char *reason) {
    snprintf(c->empty_path, sizeof(c->empty_path), "%s", path);
    snprintf(c->empty_reason, sizeof(c->empty_reason), "%s", reason);
}

/* --- Memory --- */

#define CHUNK_BYTES ((size_t)16384)

struct schema_chunk {
    struct schema_chunk *next;
    size_t used, capacity;
    alignas(max_align_t) char bytes[];
};

void *schema_allocate(struct schema_context *c, size_t bytes) {
    struct schema_chunk *chunk = c->chunks;
    size_t align = alignof(max_align_t), rounded = (bytes + align - 1) / align * align;
    c->num_allocated += rounded;
    *c->work -= (int64_t)(rounded / SCHEMA_BYTES_PER_WORK);
    if (c->num_allocated > SCHEMA_MAX_MEMORY) {
        schema_decline(c, c->path, "the schema takes too much memory");
        return NULL;
    }
    if (chunk == NULL || chunk->capacity - chunk->used < rounded) {
        size_t capacity = rounded > CHUNK_BYTES ? rounded : CHUNK_BYTES;
        chunk = malloc(sizeof(*chunk) + capacity);
        if (chunk == NULL) {
            api_error_set_memory(c->err);
            return NULL;
        }
        *chunk = (struct schema_chunk){c->chunks, 0, capacity};
        c->chunks = chunk;
    }
    void *memory = chunk->bytes + chunk->used;
    chunk->used += rounded;
    return memory;
}

static void free_chunks(struct schema_context *c) {
    while (c->chunks != NULL) {
        struct schema_chunk *next = c->chunks->next;
        free(c->chunks);
        c->chunks = next;
    }
}

/* --- Bounds and fields --- */

int schema_add_steps(struct schema_context *c, size_t steps) {
    *c->work -= steps < GRAMMAR_MAX_WORK ? SCHEMA_STEP_WORK * (int64_t)steps : GRAMMAR_MAX_WORK;
    if (*c->work < 0)
        return schema_decline(c, c->path,
                              "the request's schemas take more work than one request may");
    return 0;
}

int schema_count_one(struct schema_context *c, const char *path, const char *what) {
    if (++c->num_schemas > JSON_SCHEMA_MAX_SCHEMAS)
        return schema_decline(c, path, "there are more than %d %s", JSON_SCHEMA_MAX_SCHEMAS, what);
    *c->work -= SCHEMA_WORK;
    return schema_add_steps(c, 0);
}

int schema_child(struct schema_context *c, const struct schema_literal *parent, const cJSON *schema,
                 const char *label, struct schema_literal *out) {
    char path[SCHEMA_MAX_PATH];
    snprintf(path, sizeof(path), "%s.%s", parent->path, label);
    size_t bytes = strlen(path) + 1;
    char *copy = schema_allocate(c, bytes);
    if (copy == NULL)
        return -1;
    memcpy(copy, path, bytes);
    *out = (struct schema_literal){schema, false, parent->depth + 1, copy};
    if (out->depth > JSON_SCHEMA_MAX_DEPTH)
        return schema_decline_depth(c, copy);
    if (!cJSON_IsObject(schema) && !cJSON_IsBool(schema))
        return schema_refuse(c, copy, "a schema must be an object or a boolean");
    return 0;
}

int schema_count(struct schema_context *c, const struct schema_fact *fact, int max, int *out) {
    const cJSON *item = fact->item;
    if (!cJSON_IsNumber(item) || item->valuedouble != floor(item->valuedouble) ||
        item->valuedouble < 0)
        return schema_refuse(c, fact->of.path, "%s must be an integer from 0 to %d", item->string,
                             max);
    if (item->valuedouble > max)
        return schema_decline(c, fact->of.path, "%s must be an integer from 0 to %d", item->string,
                              max);
    *out = (int)item->valuedouble;
    return 0;
}

/* --- A schema --- */

/* In drafts 4 to 7 the keywords next to a $ref are ignored. */
static bool has_old_draft(const cJSON *schema) {
    static const char *const drafts[] = {"draft-04", "draft-05", "draft-06", "draft-07"};
    const cJSON *name = cJSON_GetObjectItemCaseSensitive(schema, "$schema");
    for (size_t i = 0; cJSON_IsString(name) && i < sizeof(drafts) / sizeof(drafts[0]); i++)
        if (strstr(name->valuestring, drafts[i]) != NULL)
            return true;
    return false;
}

static bool has_draft_3(const cJSON *schema) {
    const cJSON *name = cJSON_GetObjectItemCaseSensitive(schema, "$schema");
    return cJSON_IsString(name) && strstr(name->valuestring, "draft-03") != NULL;
}

static int compile(struct schema_context *c, const char *path, grammar_node *out) {
    const struct schema_literal literal = {c->root, false, 0, path};
    const struct schema_goal goal = {&literal, 1};
    grammar_node node;
    bool is_empty;
    if (!cJSON_IsObject(c->root) && !cJSON_IsBool(c->root))
        return schema_refuse(c, path, "a schema must be an object or a boolean");
    if (has_draft_3(c->root))
        return schema_decline(c, path, "$schema names a draft before the fourth");
    if (schema_goal_node(c, &goal, &node) != 0 || schema_define_goals(c) != 0 ||
        schema_goal_has_no_text(c, &goal, &is_empty) != 0)
        return -1;
    if (is_empty && c->empty_path[0] != '\0')
        return schema_decline(c, c->empty_path, "%s", c->empty_reason);
    if (is_empty)
        return schema_decline(c, path, "nothing matches the schema");
    *out = node;
    return 0;
}

int json_schema_node(struct grammar_builder *builder, const cJSON *schema, const char *path,
                     bool strict, const char *whitespace, grammar_node *out,
                     struct api_error *err) {
    struct schema_context c = {.builder = builder,
                               .root = schema,
                               .path = path,
                               .strict = strict,
                               .whitespace = whitespace,
                               .ignores_ref_siblings = has_old_draft(schema),
                               .err = err,
                               .work = grammar_builder_work(builder),
                               .pieces = JSON_PIECES_NONE};
    int result = compile(&c, path, out);
    schema_forget_automata(&c);
    free_chunks(&c);
    return result;
}

grammar_node json_schema_any_object(struct grammar_builder *builder, const char *whitespace) {
    struct schema_context c = {.builder = builder,
                               .whitespace = whitespace,
                               .work = grammar_builder_work(builder),
                               .pieces = JSON_PIECES_NONE};
    return schema_any_object(&c);
}

int json_schema_build(struct grammar_builder *builder, grammar_node root, const char *path,
                      struct grammar **out, struct api_error *err) {
    struct error error;
    if (grammar_build(builder, root, out, &error) == 0)
        return 0;
    if (error.code == ERROR_MEMORY)
        return api_error_set_memory(err);
    return bad_request(err, codes[SCHEMA_INVALID], path, "%s: %s", path, error.message);
}
