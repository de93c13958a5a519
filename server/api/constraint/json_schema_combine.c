/* Schemas that are made of others: what a $ref names, and schemas merged into one. `required` and
 * `properties` are united, and a property that both describe must match both; of other keywords
 * that both have, the later one counts. */
#include "server/api/constraint/json_schema_private.h"

#include <stdlib.h>
#include <string.h>

#define MAX_REF_STEPS 16 /* a $ref to a $ref ... */
#define MAX_COPIED 50000 /* values, in all that is merged */

static int no_memory(struct schema_context *c) {
    return api_error_set_memory(c->err);
}

/* One part of a JSON pointer, "~1" for "/", "~0" for "~", unescaped into out. */
static bool read_part(const char **at, char *out, size_t capacity) {
    size_t length = 0;
    for (; **at != '\0' && **at != '/'; (*at)++) {
        char c = **at;
        if (c == '~' && ((*at)[1] == '0' || (*at)[1] == '1')) {
            (*at)++;
            c = **at == '0' ? '~' : '/';
        }
        if (length + 1 == capacity)
            return false;
        out[length++] = c;
    }
    out[length] = '\0';
    return true;
}

/* *out is NULL when there is no such member. -1: too many steps. */
static int find_member(struct schema_context *c, const cJSON *object, const char *name,
                       cJSON **out) {
    size_t steps = 1;
    cJSON *item = cJSON_IsObject(object) ? object->child : NULL;
    for (; item != NULL && strcmp(item->string, name) != 0; item = item->next)
        steps++;
    *out = item;
    return schema_add_steps(c, steps);
}

static int step_into(struct schema_context *c, const cJSON *from, const char *part, cJSON **out) {
    if (!cJSON_IsArray(from))
        return find_member(c, from, part, out);
    size_t steps = 1;
    cJSON *item = part[0] >= '0' && part[0] <= '9' ? from->child : NULL;
    for (long index = strtol(part, NULL, 10); item != NULL && index > 0; index--, steps++)
        item = item->next;
    *out = item;
    return schema_add_steps(c, steps);
}

const cJSON *schema_resolve(struct schema_context *c, const char *reference) {
    const cJSON *target = c->root;
    const char *at = reference + 1;
    char part[256];
    if (reference[0] != '#' || (*at != '\0' && *at != '/')) {
        schema_decline(c, "$ref must lead into the schema itself, as \"#/$defs/name\" does");
        return NULL;
    }
    while (target != NULL && *at == '/') {
        cJSON *next = NULL;
        at++;
        if (read_part(&at, part, sizeof(part)) && step_into(c, target, part, &next) != 0)
            return NULL;
        target = next;
    }
    if (target == NULL)
        schema_refuse(c, "$ref names nothing that is in the schema");
    return target;
}

/* The schema behind references, for merging. */
static const cJSON *without_refs(struct schema_context *c, const cJSON *schema) {
    for (int steps = 0; schema != NULL; steps++) {
        const cJSON *ref = cJSON_GetObjectItemCaseSensitive(schema, "$ref");
        if (!cJSON_IsString(ref))
            return schema;
        if (steps == MAX_REF_STEPS) {
            schema_decline(c, "$ref leads to a $ref more than %d times", MAX_REF_STEPS);
            return NULL;
        }
        schema = schema_resolve(c, ref->valuestring);
    }
    return NULL;
}

static bool has_text(const cJSON *array, const char *text) {
    const cJSON *item;
    cJSON_ArrayForEach(item, array) {
        if (cJSON_IsString(item) && strcmp(item->valuestring, text) == 0)
            return true;
    }
    return false;
}

/* JSON_MAX_DEPTH bounds the recursion. */
static int count_values(const cJSON *value) {
    int count = 1;
    const cJSON *item;
    cJSON_ArrayForEach(item, value) count += count_values(item);
    return count;
}

static cJSON *copy_value(struct schema_context *c, const cJSON *value) {
    c->num_copied += count_values(value);
    if (c->num_copied > MAX_COPIED) {
        schema_decline(c, "too much is merged by allOf, anyOf or oneOf");
        return NULL;
    }
    cJSON *copy = cJSON_Duplicate(value, true);
    if (copy == NULL)
        no_memory(c);
    return copy;
}

/* Takes the value, in the place of `there` when that is not NULL. A NULL value is a failure that
 * was reported. */
static int put(struct schema_context *c, cJSON *object, cJSON *there, const char *key,
               cJSON *value) {
    if (value == NULL)
        return -1;
    if (there != NULL)
        cJSON_Delete(cJSON_DetachItemViaPointer(object, there));
    if (cJSON_AddItemToObject(object, key, value))
        return 0;
    cJSON_Delete(value);
    return no_memory(c);
}

static int append(struct schema_context *c, cJSON *array, cJSON *value) {
    if (value != NULL && cJSON_AddItemToArray(array, value))
        return 0;
    if (value == NULL)
        return -1;
    cJSON_Delete(value);
    return no_memory(c);
}

/* {"allOf": [a, b]}, which is merged when its turn comes. */
static cJSON *both(struct schema_context *c, const cJSON *a, const cJSON *b) {
    cJSON *schema = cJSON_CreateObject(), *list = cJSON_AddArrayToObject(schema, "allOf");
    if (list == NULL) {
        no_memory(c);
    } else if (append(c, list, copy_value(c, a)) == 0 && append(c, list, copy_value(c, b)) == 0) {
        return schema;
    }
    cJSON_Delete(schema);
    return NULL;
}

static int unite_properties(struct schema_context *c, cJSON *into, const cJSON *from) {
    const cJSON *item;
    cJSON_ArrayForEach(item, from) {
        cJSON *there;
        if (find_member(c, into, item->string, &there) != 0)
            return -1;
        cJSON *value = there != NULL ? both(c, there, item) : copy_value(c, item);
        if (put(c, into, there, item->string, value) != 0)
            return -1;
    }
    return 0;
}

static int unite_names(struct schema_context *c, cJSON *into, const cJSON *from) {
    const cJSON *item;
    cJSON_ArrayForEach(item, from) {
        if (schema_add_steps(c, (size_t)cJSON_GetArraySize(into)) != 0)
            return -1;
        if (cJSON_IsString(item) && !has_text(into, item->valuestring) &&
            append(c, into, copy_value(c, item)) != 0)
            return -1;
    }
    return 0;
}

static int merge_keyword(struct schema_context *c, cJSON *into, const cJSON *item) {
    cJSON *there;
    if (find_member(c, into, item->string, &there) != 0)
        return -1;
    if (strcmp(item->string, "properties") == 0 && cJSON_IsObject(there) && cJSON_IsObject(item))
        return unite_properties(c, there, item);
    if (strcmp(item->string, "required") == 0 && cJSON_IsArray(there) && cJSON_IsArray(item))
        return unite_names(c, there, item);
    bool combines = strcmp(item->string, "allOf") == 0 || strcmp(item->string, "anyOf") == 0 ||
                    strcmp(item->string, "oneOf") == 0;
    if (there != NULL && combines)
        return schema_decline(c, "%s in several schemas that are merged is not supported",
                              item->string);
    return put(c, into, there, item->string, copy_value(c, item));
}

static int merge(struct schema_context *c, cJSON *into, const cJSON *from, const char *without) {
    const cJSON *item;
    cJSON_ArrayForEach(item, from) {
        if (strcmp(item->string, without) == 0 || strcmp(item->string, "$ref") == 0)
            continue;
        if (merge_keyword(c, into, item) != 0)
            return -1;
    }
    return 0;
}

/* An empty schema that lives as long as the context. */
static cJSON *create_merged(struct schema_context *c) {
    if (c->merged == NULL)
        c->merged = cJSON_CreateArray();
    cJSON *schema = c->merged != NULL ? cJSON_CreateObject() : NULL;
    if (schema != NULL && cJSON_AddItemToArray(c->merged, schema))
        return schema;
    cJSON_Delete(schema);
    return NULL;
}

static int merge_part(struct schema_context *c, cJSON *into, const cJSON *part,
                      const char *without) {
    if (++c->num_schemas > JSON_SCHEMA_MAX_SCHEMAS)
        return schema_decline(c, "there are more than %d schemas", JSON_SCHEMA_MAX_SCHEMAS);
    if (cJSON_IsTrue(part))
        return 0;
    if (!cJSON_IsObject(part))
        return schema_refuse(c, "%s must hold schemas", without);
    const cJSON *plain = without_refs(c, part);
    if (plain == NULL)
        return -1;
    return merge(c, into, plain, without);
}

int schema_merge_all(struct schema_context *c, const cJSON *schema, const cJSON *all_of,
                     const cJSON **out) {
    cJSON *merged = create_merged(c);
    const cJSON *item;
    if (merged == NULL)
        return no_memory(c);
    if (merge_part(c, merged, schema, "allOf") != 0)
        return -1;
    cJSON_ArrayForEach(item, all_of) {
        /* An allOf within an item is left for the next round. */
        if (merge_part(c, merged, item, "") != 0)
            return -1;
    }
    *out = merged;
    return 0;
}

int schema_merge_branch(struct schema_context *c, const cJSON *schema, const char *key,
                        const cJSON *branch, const cJSON **out) {
    cJSON *merged = create_merged(c);
    if (merged == NULL)
        return no_memory(c);
    if (merge_part(c, merged, schema, key) != 0 || merge_part(c, merged, branch, "") != 0)
        return -1;
    *out = merged;
    return 0;
}
