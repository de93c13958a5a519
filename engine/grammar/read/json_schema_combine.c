/* Schemas made of others: references, and keywords that combine schemas. */
#include "engine/grammar/read/json_schema_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- What a $ref names: a place in the schema itself, by a JSON pointer or an anchor --- */

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

/* Values that are not schemas, even if they look like one. */
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

/* A schema with its own $id is the base of the references in it: then "#" need not be the root. */
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
        return schema_decline(c, path, "%s is not supported with an $id within the schema", key);
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

/* --- Schemas made of others --- */

int schema_expand_ref(const struct schema_expansion *e) {
    struct schema_literal target;
    if (schema_resolve(e->c, e->of->path, e->item, &target) != 0)
        return -1;
    target.negated = e->of->negated;
    target.depth = e->of->depth;
    return schema_expand(e->c, &target, e->type, e->nesting + 1, e->out);
}

int schema_expand_not(const struct schema_expansion *e) {
    return schema_expand_within(e, e->item, "not", !e->of->negated, e->out);
}

static int check_branches(const struct schema_expansion *e) {
    if (!cJSON_IsArray(e->item) || e->item->child == NULL)
        return schema_refuse(e->c, e->of->path, "%s must be an array that is not empty",
                             e->item->string);
    if (cJSON_GetArraySize(e->item) > JSON_SCHEMA_MAX_BRANCHES)
        return schema_decline(e->c, e->of->path, "%s has more than %d schemas", e->item->string,
                              JSON_SCHEMA_MAX_BRANCHES);
    return 0;
}

/* allOf and anyOf: one is the other's opposite. */
static int expand_list(const struct schema_expansion *e, bool is_all) {
    const cJSON *branch;
    int index = 0;
    bool ands = is_all != e->of->negated;
    if (check_branches(e) != 0 || schema_expand_value(e, ands) != 0)
        return -1;
    cJSON_ArrayForEach(branch, e->item) {
        char label[32];
        struct schema_cases cases;
        snprintf(label, sizeof(label), "%s[%d]", e->item->string, index++);
        if (schema_expand_within(e, branch, label, e->of->negated, &cases) != 0 ||
            (ands ? schema_and_cases(e->c, e->type, e->out, &cases)
                  : schema_or_cases(e->c, e->out, &cases)) != 0)
            return -1;
    }
    return 0;
}

int schema_expand_all_of(const struct schema_expansion *e) {
    return expand_list(e, true);
}

int schema_expand_any_of(const struct schema_expansion *e) {
    return expand_list(e, false);
}

static int cases_are_disjoint(struct schema_context *c, enum json_type type,
                              const struct schema_cases *a, const struct schema_cases *b,
                              bool *out) {
    *out = true;
    for (int i = 0; i < a->count && *out; i++) {
        for (int k = 0; k < b->count && *out; k++) {
            struct schema_case both;
            if (schema_join_cases(c, &a->items[i], &b->items[k], &both) != 0 ||
                schema_case_is_empty(c, type, &both, out) != 0)
                return -1;
        }
    }
    return 0;
}

/* The branches of a oneOf, each for itself. */
struct branches {
    int count;
    const cJSON *schemas[JSON_SCHEMA_MAX_BRANCHES];
    struct schema_cases cases[JSON_SCHEMA_MAX_BRANCHES];
};

static void branch_label(char *label, size_t bytes, int index) {
    snprintf(label, bytes, "oneOf[%d]", index);
}

static int read_branches(const struct schema_expansion *e, struct branches *out) {
    const cJSON *branch;
    out->count = 0;
    if (check_branches(e) != 0)
        return -1;
    cJSON_ArrayForEach(branch, e->item) {
        char label[32];
        branch_label(label, sizeof(label), out->count);
        out->schemas[out->count] = branch;
        if (schema_expand_within(e, branch, label, false, &out->cases[out->count]) != 0)
            return -1;
        out->count++;
    }
    return 0;
}

/* Branch i, and none of those that it shares values with. */
static int only_branch(const struct schema_expansion *e, const struct branches *b, int i,
                       struct schema_cases *out) {
    *out = b->cases[i];
    for (int k = 0; k < b->count; k++) {
        bool is_disjoint = true;
        if (k == i)
            continue;
        if (cases_are_disjoint(e->c, e->type, &b->cases[i], &b->cases[k], &is_disjoint) != 0)
            return -1;
        if (is_disjoint)
            continue;
        char label[32];
        struct schema_cases opposite;
        branch_label(label, sizeof(label), k);
        if (schema_expand_within(e, b->schemas[k], label, true, &opposite) != 0 ||
            schema_and_cases(e->c, e->type, out, &opposite) != 0)
            return -1;
    }
    return 0;
}

/* Not exactly one: none, or two. */
static int not_one(const struct schema_expansion *e, const struct branches *b) {
    if (schema_expand_value(e, true) != 0)
        return -1;
    for (int i = 0; i < b->count; i++) {
        char label[32];
        struct schema_cases opposite;
        branch_label(label, sizeof(label), i);
        if (schema_expand_within(e, b->schemas[i], label, true, &opposite) != 0 ||
            schema_and_cases(e->c, e->type, e->out, &opposite) != 0)
            return -1;
    }
    for (int i = 0; i < b->count; i++) {
        for (int k = i + 1; k < b->count; k++) {
            struct schema_cases both = b->cases[i];
            if (schema_and_cases(e->c, e->type, &both, &b->cases[k]) != 0 ||
                schema_or_cases(e->c, e->out, &both) != 0)
                return -1;
        }
    }
    return 0;
}

int schema_expand_one_of(const struct schema_expansion *e) {
    struct branches *b = schema_allocate(e->c, sizeof(*b));
    if (b == NULL || read_branches(e, b) != 0)
        return -1;
    if (e->of->negated)
        return not_one(e, b);
    if (schema_expand_value(e, false) != 0)
        return -1;
    for (int i = 0; i < b->count; i++) {
        struct schema_cases only;
        if (only_branch(e, b, i, &only) != 0 || schema_or_cases(e->c, e->out, &only) != 0)
            return -1;
    }
    return 0;
}

int schema_branches_are_disjoint(struct schema_context *c, const struct schema_literal *of,
                                 const cJSON *branches, bool *out) {
    struct branches *b = schema_allocate(c, sizeof(*b));
    if (b == NULL)
        return -1;
    *out = true;
    for (int type = 0; type < NUM_TYPES && *out; type++) {
        const struct schema_expansion e = {c, of, branches, (enum json_type)type, 0, NULL};
        if (read_branches(&e, b) != 0)
            return -1;
        for (int i = 0; i < b->count && *out; i++)
            for (int k = i + 1; k < b->count && *out; k++)
                if (cases_are_disjoint(c, e.type, &b->cases[i], &b->cases[k], out) != 0)
                    return -1;
    }
    return 0;
}

/* (if and then) or (not if and else), also of the opposite. An absent one holds always. */
int schema_expand_if(const struct schema_expansion *e) {
    static const char *const keys[] = {"then", "else"};
    struct schema_cases sides[2];
    if (cJSON_GetObjectItemCaseSensitive(e->of->schema, "then") == NULL &&
        cJSON_GetObjectItemCaseSensitive(e->of->schema, "else") == NULL)
        return schema_expand_true(e);
    for (int i = 0; i < 2; i++) {
        const cJSON *branch = cJSON_GetObjectItemCaseSensitive(e->of->schema, keys[i]);
        struct schema_cases own;
        if (schema_expand_within(e, e->item, "if", i == 1, &sides[i]) != 0)
            return -1;
        if ((branch != NULL ? schema_expand_within(e, branch, keys[i], e->of->negated, &own)
                            : schema_set_cases(e->c, !e->of->negated, &own)) != 0 ||
            schema_and_cases(e->c, e->type, &sides[i], &own) != 0)
            return -1;
    }
    *e->out = sides[0];
    return schema_or_cases(e->c, e->out, &sides[1]);
}
