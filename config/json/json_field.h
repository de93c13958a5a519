/* Reads an object's fields by a table that gives their types and ranges. Every number from outside
 * passes through here: no other code reads a cJSON number. If a field is absent or null, its target
 * keeps the value that it had before (the default). */
#ifndef QUIRE_CONFIG_JSON_JSON_FIELD_H
#define QUIRE_CONFIG_JSON_JSON_FIELD_H

#include "config/base/byte_buffer.h"
#include "config/json/api_error.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum json_field_kind {
    JSON_FIELD_BOOL,   /* target: bool */
    JSON_FIELD_INT,    /* target: int64_t in [min, max] */
    JSON_FIELD_INT64,  /* target: int64_t, any */
    JSON_FIELD_INT32,  /* target: int32_t in [min, max] */
    JSON_FIELD_NUMBER, /* target: double in [min, max], or (min, max] with above_min */
    JSON_FIELD_FLOAT,  /* target: float, the nearest; bounds as for JSON_FIELD_NUMBER */
    JSON_FIELD_TEXT,   /* target: const char *, owned by the cJSON tree */
    JSON_FIELD_OTHER,  /* known, read by hand; no target */
};

struct json_field {
    const char *name;
    enum json_field_kind kind;
    size_t offset; /* of the target in the struct that is filled */
    double min,
        max; /* JSON_FIELD_INT, _INT32: whole numbers within +-JSON_MAX_INT (json_integer.h) */
    bool above_min;
    const char *max_option; /* what raises max; NULL: nothing */
};

/* Lines of a table: the field has the name of the struct's member. */
#define JSON_BOOL(type, member)                                                                    \
    { #member, JSON_FIELD_BOOL, .offset = offsetof(type, member) }
#define JSON_INT(type, member, low, high)                                                          \
    { #member, JSON_FIELD_INT, .offset = offsetof(type, member), .min = (low), .max = (high) }
#define JSON_INT64(type, member)                                                                   \
    { #member, JSON_FIELD_INT64, .offset = offsetof(type, member) }
#define JSON_NUMBER(type, member, low, high)                                                       \
    { #member, JSON_FIELD_NUMBER, .offset = offsetof(type, member), .min = (low), .max = (high) }
#define JSON_TEXT(type, member)                                                                    \
    { #member, JSON_FIELD_TEXT, .offset = offsetof(type, member) }
#define JSON_OTHER(field)                                                                          \
    { #field, JSON_FIELD_OTHER }

/* An endpoint's other name for a field. An object may have either; if it has both, the alias
 * counts. */
struct json_alias {
    const char *name, *alias;
    bool has_none; /* the alias takes whole numbers from `none` up; `none` counts as absent */
    int64_t none;
    bool is_synonym; /* known from other servers: counts only if the object does not have the name,
                        nor another alias; with has_none both take `none`, as a value */
};

struct json_table {
    const struct json_field *fields;
    int num_fields;
    const struct json_alias *aliases; /* of fields of this table, or of none */
    int num_aliases;
};

#define JSON_TABLE(array)                                                                          \
    (struct json_table) {                                                                          \
        .fields = (array), .num_fields = (int)(sizeof(array) / sizeof((array)[0]))                 \
    }

/* Reads all fields of the table into *target. On failure returns -1 and fills *err: status 400,
 * param is the field's name in the object, and the message gives that name, the value and what is
 * allowed. */
int json_fields_read(const cJSON *object, struct json_table table, void *target,
                     struct api_error *err);

/* Read one number outside a table; path names it in messages ("prompt[3]"). */
int json_read_int(const cJSON *item, const char *path, int64_t min, int64_t max, int64_t *out,
                  struct api_error *err);
int json_read_number(const cJSON *item, const char *path, double min, double max, double *out,
                     struct api_error *err);

/* Returns whether one of the tables has a field with this name or alias. */
bool json_fields_know(const struct json_table *tables, int num_tables, const char *name);

/* Appends the names of the object's keys that are in none of the tables, not null (which counts as
 * absent) and not skipped (skips NULL: none is). They are separated by commas, and each follows
 * prefix. The result is safe in an HTTP header: bytes other than [A-Za-z0-9_.-], [ and ] become
 * '_', a name is cut at 64 bytes, and a list that would exceed 1024 bytes ends in "...". */
void json_fields_list_unknown(const cJSON *object, const struct json_table *tables, int num_tables,
                              bool (*skips)(const cJSON *item), const char *prefix,
                              struct byte_buffer *out);

/* Checks an option that is an object: if it has such keys, returns -1 and fills *err, status 400,
 * with their names and those of the table. */
int json_fields_refuse_unknown(const cJSON *object, struct json_table table, struct api_error *err);

/* Appends one such name. Returns false when the list is cut, so that further ones would be left
 * out. */
bool json_fields_append_name(const char *text, const char *prefix, struct byte_buffer *out);

/* Returns a member of an object; NULL if it has none with this name, or is not an object. */
static inline const cJSON *json_member(const cJSON *object, const char *name) {
    return cJSON_GetObjectItemCaseSensitive(object, name);
}

/* Returns a member of nested objects by its dotted path ("text.format"); NULL if there is none. */
const cJSON *json_member_at(const cJSON *object, const char *path);

/* null counts as absent. */
static inline bool json_is_given(const cJSON *item) {
    return item != NULL && !cJSON_IsNull(item);
}

static inline const cJSON *json_given_member(const cJSON *object, const char *name) {
    const cJSON *item = json_member(object, name);
    return json_is_given(item) ? item : NULL;
}

/* Returns whether the item is this text. NULL: it is not. */
static inline bool json_is_text(const cJSON *item, const char *text) {
    return cJSON_IsString(item) && strcmp(item->valuestring, text) == 0;
}

/* Return a field's member, by its alias or its name, NULL if neither is given; and what the object
 * calls the field, which is its alias if it has neither. */
const cJSON *json_aliased_member(const cJSON *object, const struct json_alias *aliases,
                                 int num_aliases, const char *name);
const char *json_aliased_name(const cJSON *object, const struct json_alias *aliases,
                              int num_aliases, const char *name);

/* Return whether the field takes whole numbers from min to max, and whether it takes numbers from
 * min to max at all. */
static inline bool json_field_is_int(const struct json_field *field) {
    return field->kind == JSON_FIELD_INT || field->kind == JSON_FIELD_INT32;
}
static inline bool json_field_is_bounded(const struct json_field *field) {
    return json_field_is_int(field) || field->kind == JSON_FIELD_NUMBER ||
           field->kind == JSON_FIELD_FLOAT;
}

/* Returns -1 and fills *err: "PATH must be ALLOWED, not VALUE", with the value cut short. item may
 * be NULL (missing). */
int json_refuse(const cJSON *item, const char *path, const char *allowed, struct api_error *err);

#endif
