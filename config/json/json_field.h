/* Typed, ranged reading of an object's fields from a table. Every number that comes from outside
 * passes here: no other code reads a cJSON number. A field that is absent or null keeps the value
 * its target had before (the default). */
#ifndef QUIRE_CONFIG_JSON_JSON_FIELD_H
#define QUIRE_CONFIG_JSON_JSON_FIELD_H

#include "config/base/byte_buffer.h"
#include "config/json/api_error.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum json_field_kind {
    JSON_FIELD_BOOL,   /* target: bool */
    JSON_FIELD_INT,    /* target: int64_t in [min, max] */
    JSON_FIELD_INT64,  /* target: int64_t, any */
    JSON_FIELD_INT32,  /* target: int32_t in [min, max] */
    JSON_FIELD_NUMBER, /* target: double in [min, max], or (min, max] with above_min */
    JSON_FIELD_FLOAT,  /* target: float, the nearest; bounds as of JSON_FIELD_NUMBER */
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

/* Lines of a table: the field is called as the struct's member is. */
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

/* An endpoint's other name for a field. An object may have either; the alias counts where it has
 * both. */
struct json_alias {
    const char *name, *alias;
    bool has_none; /* the alias takes whole numbers from `none`, which counts as absent */
    int64_t none;
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

/* Reads all fields of the table into *target. On failure -1 and *err, status 400, param the field's
 * name in the object, a message with that name, its value and what is allowed. */
int json_fields_read(const cJSON *object, struct json_table table, void *target,
                     struct api_error *err);

/* Read one number outside a table; path names it in messages ("prompt[3]"). */
int json_read_int(const cJSON *item, const char *path, int64_t min, int64_t max, int64_t *out,
                  struct api_error *err);
int json_read_number(const cJSON *item, const char *path, double min, double max, double *out,
                     struct api_error *err);

/* Returns whether one of the tables has a field of that name, or of that alias. */
bool json_fields_know(const struct json_table *tables, int num_tables, const char *name);

/* Appends the names of the object's keys that are in none of the tables and not null, which counts
 * as absent, and not skipped (NULL: none is); comma-separated, each behind prefix. Fit for an HTTP
 * header: bytes other than [A-Za-z0-9_.-], [ and ] become '_', a name is cut at 64 bytes, and a
 * list that would pass 1024 bytes ends in "...". */
void json_fields_list_unknown(const cJSON *object, const struct json_table *tables, int num_tables,
                              bool (*skips)(const cJSON *item), const char *prefix,
                              struct byte_buffer *out);

/* Of an option that is an object: -1 and *err, status 400, when it has such keys, with their names
 * and those of the table. */
int json_fields_refuse_unknown(const cJSON *object, struct json_table table, struct api_error *err);

/* Appends one such name; false: the list is cut, and further ones would be left out. */
bool json_fields_append_name(const char *text, const char *prefix, struct byte_buffer *out);

/* A member of an object; NULL: it has none of that name, or is no object. */
static inline const cJSON *json_member(const cJSON *object, const char *name) {
    return cJSON_GetObjectItemCaseSensitive(object, name);
}

/* A member by its dotted path ("text.format"), of objects in each other; NULL: it has none. */
const cJSON *json_member_at(const cJSON *object, const char *path);

/* null counts as absent. */
static inline bool json_is_given(const cJSON *item) {
    return item != NULL && !cJSON_IsNull(item);
}

static inline const cJSON *json_given_member(const cJSON *object, const char *name) {
    const cJSON *item = json_member(object, name);
    return json_is_given(item) ? item : NULL;
}

/* Return a field's member, by its alias or its name, NULL where neither is given; and what the
 * object calls the field, its alias where it has neither. */
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

/* -1 and *err: "PATH must be ALLOWED, not VALUE", the value cut short; item may be NULL (missing).
 */
int json_refuse(const cJSON *item, const char *path, const char *allowed, struct api_error *err);

#endif
