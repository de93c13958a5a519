#include "config/json/json_field.h"

#include "config/base/numbers.h"
#include "config/base/utf8.h"
#include "config/json/json_integer.h"
#include "config/json/json_write.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MAX_SHOWN_BYTES 40
#define MAX_NAME_BYTES 64
#define MAX_LIST_BYTES 1024
#define MAX_REFUSED_BYTES 200 /* of a list in a message */

static void describe_text(const char *text, char *out, size_t capacity) {
    size_t length = strlen(text), shown = 0, step;
    while (shown < length && (step = utf8_char_bytes(text + shown, length - shown)) > 0 &&
           shown + step <= MAX_SHOWN_BYTES)
        shown += step;
    struct byte_buffer buffer = {0};
    json_write_string(&buffer, text, shown);
    snprintf(out, capacity, "%.*s%s", (int)buffer.length, buffer.data, shown < length ? "..." : "");
    byte_buffer_finish(&buffer);
}

static void describe_value(const cJSON *item, char *out, size_t capacity) {
    if (item == NULL)
        snprintf(out, capacity, "missing");
    else if (cJSON_IsString(item))
        describe_text(item->valuestring, out, capacity);
    else if (cJSON_IsNumber(item))
        json_integer_print(item, out, capacity);
    else if (cJSON_IsArray(item))
        snprintf(out, capacity, "an array");
    else if (cJSON_IsObject(item))
        snprintf(out, capacity, "an object");
    else if (cJSON_IsBool(item))
        snprintf(out, capacity, cJSON_IsTrue(item) ? "true" : "false");
    else
        snprintf(out, capacity, "null");
}

static int refuse(const cJSON *item, const char *path, const char *code, const char *allowed,
                  struct api_error *err) {
    char value[6 * MAX_SHOWN_BYTES + 8]; /* every byte may be escaped */
    describe_value(item, value, sizeof(value));
    return bad_request(err, code, path, "%s must be %s, not %s", path, allowed, value);
}

int json_refuse(const cJSON *item, const char *path, const char *allowed, struct api_error *err) {
    return refuse(item, path, "invalid_type", allowed, err);
}

static int refuse_number(const cJSON *item, const struct json_field *field, const char *path,
                         struct api_error *err) {
    char allowed[128];
    bool is_int = json_field_is_int(field);
    snprintf(
        allowed, sizeof(allowed), "%s %s %.17g %s %.17g%s%s%s", is_int ? "an integer" : "a number",
        field->above_min ? "above" : "from", field->min, field->above_min ? "and at most" : "to",
        field->max, field->max_option != NULL ? " (" : "",
        field->max_option != NULL ? field->max_option : "", field->max_option != NULL ? ")" : "");
    bool whole = cJSON_IsNumber(item) && (!is_int || item->valuedouble == floor(item->valuedouble));
    return refuse(item, path, whole ? "out_of_range" : "invalid_type", allowed, err);
}

static bool number_is_allowed(const cJSON *item, const struct json_field *field) {
    if (!cJSON_IsNumber(item))
        return false;
    double value = item->valuedouble;
    if (json_field_is_int(field))
        return value == floor(value) && value >= field->min && value <= field->max;
    return value <= field->max && (field->above_min ? value > field->min : value >= field->min);
}

static int read_int64(const cJSON *item, const struct json_field *field, const char *path,
                      int64_t *out, struct api_error *err) {
    static const char any[] = "an integer from -9223372036854775808 to 9223372036854775807";
    if (json_field_is_int(field) && !number_is_allowed(item, field))
        return refuse_number(item, field, path, err);
    if (json_integer_read(item, out))
        return 0;
    bool is_whole = cJSON_IsNumber(item) && item->valuedouble == floor(item->valuedouble);
    return refuse(item, path, is_whole ? "out_of_range" : "invalid_type", any, err);
}

static int read_number(const cJSON *item, const struct json_field *field, const char *path,
                       double *out, struct api_error *err) {
    if (!number_is_allowed(item, field))
        return refuse_number(item, field, path, err);
    *out = item->valuedouble;
    return 0;
}

static int read_field(const cJSON *item, const struct json_field *field, void *target,
                      struct api_error *err) {
    const char *name = item->string; /* the client's, an alias too */
    char *place = (char *)target + field->offset;
    int64_t whole = 0;
    double number = 0;
    switch (field->kind) {
    case JSON_FIELD_BOOL:
        if (!cJSON_IsBool(item))
            return json_refuse(item, name, "true or false", err);
        *(bool *)place = cJSON_IsTrue(item);
        return 0;
    case JSON_FIELD_INT:
    case JSON_FIELD_INT64:
        return read_int64(item, field, name, (int64_t *)place, err);
    case JSON_FIELD_INT32:
        if (read_int64(item, field, name, &whole, err) != 0)
            return -1;
        *(int32_t *)place = (int32_t)whole;
        return 0;
    case JSON_FIELD_NUMBER:
        return read_number(item, field, name, (double *)place, err);
    case JSON_FIELD_FLOAT:
        if (read_number(item, field, name, &number, err) != 0)
            return -1;
        *(float *)place = (float)number;
        return 0;
    case JSON_FIELD_TEXT:
        if (!cJSON_IsString(item))
            return json_refuse(item, name, "a string", err);
        *(const char **)place = item->valuestring;
        return 0;
    case JSON_FIELD_OTHER:
        return 0;
    }
    return 0;
}

static const struct json_alias *find_alias(const struct json_alias *aliases, int num_aliases,
                                           const char *name) {
    for (int i = 0; i < num_aliases; i++) {
        if (strcmp(aliases[i].name, name) == 0)
            return &aliases[i];
    }
    return NULL;
}

/* Returns the member under the alias only; NULL if it is not given. */
static const cJSON *alias_member(const cJSON *object, const struct json_alias *alias) {
    const cJSON *item = json_given_member(object, alias->alias);
    int64_t value;
    bool is_none = item != NULL && alias->has_none && !alias->is_synonym &&
                   json_integer_read(item, &value) && value == alias->none;
    return is_none ? NULL : item;
}

/* Returns the member that counts, NULL if none is given, and what the object calls it. */
static const cJSON *find_member(const cJSON *object, const struct json_alias *aliases,
                                int num_aliases, const char *name, const char **out_name) {
    const cJSON *items[3] = {NULL, json_given_member(object, name), NULL};
    const char *names[3] = {NULL, name, NULL};
    for (int i = 0; i < num_aliases; i++) {
        int place = aliases[i].is_synonym ? 2 : 0;
        if (strcmp(aliases[i].name, name) != 0 || items[place] != NULL)
            continue;
        items[place] = alias_member(object, &aliases[i]);
        names[place] = aliases[i].alias;
    }
    for (int place = 0; place < 3; place++) {
        *out_name = names[place];
        if (items[place] != NULL)
            return items[place];
    }
    *out_name = names[0] != NULL ? names[0] : name;
    return NULL;
}

const cJSON *json_aliased_member(const cJSON *object, const struct json_alias *aliases,
                                 int num_aliases, const char *name) {
    const char *shown;
    return find_member(object, aliases, num_aliases, name, &shown);
}

const char *json_aliased_name(const cJSON *object, const struct json_alias *aliases,
                              int num_aliases, const char *name) {
    const char *shown;
    find_member(object, aliases, num_aliases, name, &shown);
    return shown;
}

/* Returns the field's line in the table, NULL if there is none. */
static const struct json_field *find_field(const struct json_table *table, const char *name) {
    for (int i = 0; i < table->num_aliases; i++) {
        if (strcmp(table->aliases[i].alias, name) == 0) {
            name = table->aliases[i].name;
            break;
        }
    }
    for (int i = 0; i < table->num_fields; i++) {
        if (strcmp(table->fields[i].name, name) == 0)
            return &table->fields[i];
    }
    return NULL;
}

/* Reads a field that the table has an alias for, unless another member of the object counts
 * instead. */
static int read_aliased(const cJSON *object, const cJSON *item, const struct json_table *table,
                        const struct json_field *field, void *target, struct api_error *err) {
    struct json_field bound = *field;
    if (json_aliased_member(object, table->aliases, table->num_aliases, field->name) != item)
        return 0;
    for (int i = 0; i < table->num_aliases; i++) {
        const struct json_alias *alias = &table->aliases[i];
        bool is_meant = strcmp(alias->name, field->name) == 0 &&
                        (alias->is_synonym || strcmp(item->string, alias->alias) == 0);
        if (alias->has_none && is_meant)
            bound.min = (double)alias->none;
    }
    return read_field(item, &bound, target, err);
}

int json_fields_read(const cJSON *object, struct json_table table, void *target,
                     struct api_error *err) {
    const cJSON *item;
    cJSON_ArrayForEach(item, object) {
        const struct json_field *field = find_field(&table, item->string);
        if (field == NULL || cJSON_IsNull(item))
            continue;
        bool has_alias = find_alias(table.aliases, table.num_aliases, field->name) != NULL;
        int result = has_alias ? read_aliased(object, item, &table, field, target, err)
                               : read_field(item, field, target, err);
        if (result != 0)
            return -1;
    }
    return 0;
}

int json_read_int(const cJSON *item, const char *path, int64_t min, int64_t max, int64_t *out,
                  struct api_error *err) {
    struct json_field field = {.kind = JSON_FIELD_INT, .min = (double)min, .max = (double)max};
    return read_int64(item, &field, path, out, err);
}

int json_read_number(const cJSON *item, const char *path, double min, double max, double *out,
                     struct api_error *err) {
    struct json_field field = {.kind = JSON_FIELD_NUMBER, .min = min, .max = max};
    return read_number(item, &field, path, out, err);
}

const cJSON *json_member_at(const cJSON *object, const char *path) {
    const char *dot;
    while (object != NULL && (dot = strchr(path, '.')) != NULL) {
        char name[MAX_NAME_BYTES];
        snprintf(name, sizeof(name), "%.*s", (int)(dot - path), path);
        object = json_member(object, name);
        path = dot + 1;
    }
    return json_member(object, path);
}

static bool is_header_safe(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.' || c == '-' || c == '[' || c == ']';
}

bool json_fields_know(const struct json_table *tables, int num_tables, const char *name) {
    for (int i = 0; i < num_tables; i++) {
        if (find_field(&tables[i], name) != NULL)
            return true;
    }
    return false;
}

bool json_fields_append_name(const char *text, const char *prefix, struct byte_buffer *out) {
    char name[MAX_NAME_BYTES];
    size_t length = 0;
    for (; length < sizeof(name) && text[length] != '\0'; length++)
        name[length] = is_header_safe(text[length]) ? text[length] : '_';
    if (out->length >= 3 && memcmp(out->data + out->length - 3, "...", 3) == 0)
        return false;
    if (out->length > 0)
        byte_buffer_append(out, ",", 1);
    if (out->length + strlen(prefix) + length > MAX_LIST_BYTES - 4) {
        byte_buffer_append_text(out, "...");
        return false;
    }
    byte_buffer_append_text(out, prefix);
    byte_buffer_append(out, name, length);
    return true;
}

void json_fields_list_unknown(const cJSON *object, const struct json_table *tables, int num_tables,
                              bool (*skips)(const cJSON *item), const char *prefix,
                              struct byte_buffer *out) {
    const cJSON *item;
    cJSON_ArrayForEach(item, object) {
        if (cJSON_IsNull(item) || json_fields_know(tables, num_tables, item->string) ||
            (skips != NULL && skips(item)))
            continue;
        if (!json_fields_append_name(item->string, prefix, out))
            return;
    }
}

/* "a, b and c" */
static void list_known(struct json_table table, struct byte_buffer *out) {
    for (int i = 0; i < table.num_fields; i++) {
        if (i > 0)
            byte_buffer_append_text(out, i + 1 < table.num_fields ? ", " : " and ");
        byte_buffer_append_text(out, table.fields[i].name);
    }
}

int json_fields_refuse_unknown(const cJSON *object, struct json_table table,
                               struct api_error *err) {
    struct byte_buffer unknown = {0}, known = {0};
    int status = 0;
    json_fields_list_unknown(object, &table, 1, NULL, "", &unknown);
    list_known(table, &known);
    if (unknown.failed || known.failed)
        status = api_error_set_memory(err);
    else if (unknown.length > 0)
        status = bad_request(err, NULL, NULL, "%.*s must not be given; known are %.*s",
                             (int)min_size(unknown.length, MAX_REFUSED_BYTES), unknown.data,
                             (int)known.length, known.data);
    byte_buffer_finish(&known);
    byte_buffer_finish(&unknown);
    return status;
}
