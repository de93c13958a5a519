/* What a $ref names: a place in the schema itself, by a JSON pointer or an anchor. */
#include "engine/grammar/read/json_schema_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One part of a JSON pointer in a URI fragment, "~1" for "/", "~0" for "~", "%25" for "%",
 * unescaped into out. */
static bool read_part(const char **at, char *out, size_t capacity) {
    size_t length = 0;
    for (; **at != '\0' && **at != '/'; (*at)++) {
        char c = **at;
        if (c == '%') {
            char digits[3] = {(*at)[1], (*at)[1] != '\0' ? (*at)[2] : '\0', '\0'}, *end;
            c = (char)strtol(digits, &end, 16);
            if (end != digits + 2 || c == '\0')
                return false;
            *at += 2;
        }
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

static int step_into(struct schema_context *c, const cJSON *from, const char *part,
                     const cJSON **out) {
    if (!cJSON_IsArray(from))
        return schema_find(c, from, part, out);
    size_t steps = 1;
    const cJSON *item = part[0] >= '0' && part[0] <= '9' ? from->child : NULL;
    for (long index = strtol(part, NULL, 10); item != NULL && index > 0; index--, steps++)
        item = item->next;
    *out = item;
    return schema_add_steps(c, steps);
}

static int follow_pointer(struct schema_context *c, const char *at, const cJSON **out) {
    char part[256];
    const cJSON *target = c->root;
    while (target != NULL && *at == '/') {
        const cJSON *next = NULL;
        at++;
        if (read_part(&at, part, sizeof(part)) && step_into(c, target, part, &next) != 0)
            return -1;
        target = next;
    }
    *out = target;
    return 0;
}

/* Values that are no schemas, whatever they look like. */
static bool is_data(const cJSON *item) {
    static const char *const keys[] = {"enum", "const", "default", "examples", "example"};
    for (size_t i = 0; item->string != NULL && i < sizeof(keys) / sizeof(keys[0]); i++)
        if (strcmp(item->string, keys[i]) == 0)
            return true;
    return false;
}

static bool names_anchor(const cJSON *item, const char *reference) {
    bool is_anchor =
        strcmp(item->string, "$anchor") == 0 || strcmp(item->string, "$dynamicAnchor") == 0;
    bool is_id = strcmp(item->string, "$id") == 0 || strcmp(item->string, "id") == 0;
    return (is_anchor && strcmp(item->valuestring, reference + 1) == 0) ||
           (is_id && strcmp(item->valuestring, reference) == 0);
}

/* Finds the one schema with the anchor; before 2019-09 that was an $id which is a fragment. *count:
 * how many there are. JSON_MAX_DEPTH bounds the recursion. */
static int find_anchor(struct schema_context *c, const cJSON *from, const char *reference,
                       const cJSON **out, int *count) {
    const cJSON *item;
    cJSON_ArrayForEach(item, from) {
        if (cJSON_IsObject(from) && cJSON_IsString(item) && names_anchor(item, reference)) {
            *out = from;
            ++*count;
        }
        if (schema_add_steps(c, 1) != 0 ||
            (!is_data(item) && find_anchor(c, item, reference, out, count) != 0))
            return -1;
    }
    return 0;
}

/* A schema with an $id of its own is the base of the references in it: then "#" may not be the
 * root. */
static int has_other_base(struct schema_context *c, const cJSON *from, bool *out) {
    const cJSON *item;
    const char *key = c->ignores_ref_siblings ? "id" : "$id";
    cJSON_ArrayForEach(item, from) {
        bool is_id = cJSON_IsObject(from) && from != c->root && cJSON_IsString(item) &&
                     (strcmp(item->string, "$id") == 0 || strcmp(item->string, key) == 0);
        *out = *out || (is_id && item->valuestring[0] != '#');
        if (schema_add_steps(c, 1) != 0 || (!is_data(item) && has_other_base(c, item, out) != 0))
            return -1;
    }
    return 0;
}

/* It is looked for once. */
static int check_base(struct schema_context *c, const char *path, const char *key) {
    bool differs = false;
    if (!c->is_base_known && has_other_base(c, c->root, &differs) != 0)
        return -1;
    c->is_base_known = true;
    c->has_other_base = c->has_other_base || differs;
    if (c->has_other_base)
        return schema_decline(c, path, "%s is not supported beside an $id within the schema", key);
    return 0;
}

static int find_target(struct schema_context *c, const char *path, const cJSON *ref,
                       const cJSON **out) {
    const char *key = ref->string, *name = ref->valuestring;
    int count = 0;
    if (name[0] != '#')
        return schema_decline(c, path,
                              "%s must lead into the schema itself, as \"#/$defs/name\" does", key);
    if (check_base(c, path, key) != 0)
        return -1;
    if (name[1] == '\0' || name[1] == '/')
        return follow_pointer(c, name + 1, out);
    if (find_anchor(c, c->root, name, out, &count) != 0)
        return -1;
    if (count > 1)
        return schema_decline(c, path, "%s names an anchor of several schemas", key);
    return 0;
}

int schema_resolve(struct schema_context *c, const char *path, const cJSON *ref,
                   struct schema_literal *out) {
    const cJSON *target = NULL;
    if (!cJSON_IsString(ref))
        return schema_refuse(c, path, "%s must be a string", ref->string);
    if (find_target(c, path, ref, &target) != 0)
        return -1;
    if (target == NULL)
        return schema_refuse(c, path, "%s names nothing that is in the schema", ref->string);
    if (!cJSON_IsObject(target) && !cJSON_IsBool(target))
        return schema_refuse(c, path, "%s does not name a schema", ref->string);
    size_t bytes = strlen(ref->valuestring) + 1;
    if (bytes > SCHEMA_MAX_PATH)
        bytes = SCHEMA_MAX_PATH;
    char *copy = schema_allocate(c, bytes);
    if (copy == NULL)
        return -1;
    snprintf(copy, bytes, "%s", ref->valuestring);
    *out = (struct schema_literal){target, false, 0, copy};
    return 0;
}
