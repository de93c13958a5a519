/* Objects and arrays. An object's properties come in the order of the schema, each of them a link
 * of a chain in which those that may be missing can be skipped. */
#include "server/api/constraint/json_schema_private.h"

#include "server/json/json_write.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RULE_EVERY 64 /* links of a chain that are one rule, so that no chain nests deep */
#define MAX_PREFIX 256

/* --- Arrays --- */

/* Items from `index` on: the schema's prefix, then the rest. */
struct array {
    grammar_node prefix[MAX_PREFIX];
    int num_prefix;
    grammar_node rest; /* GRAMMAR_FAILED with has_rest false: there is none */
    bool has_rest;
    int min, max; /* max < 0: no end */
};

static int read_prefix(struct schema_context *c, const cJSON *items, const char *key,
                       struct array *out) {
    const cJSON *item;
    cJSON_ArrayForEach(item, items) {
        if (out->num_prefix == MAX_PREFIX)
            return schema_decline(c, "%s has more than %d items", key, MAX_PREFIX);
        char label[32];
        snprintf(label, sizeof(label), "%s[%d]", key, out->num_prefix);
        if (schema_child(c, item, label, &out->prefix[out->num_prefix]) != 0)
            return -1;
        out->num_prefix++;
    }
    return 0;
}

static int read_array(struct schema_context *c, const cJSON *schema, struct array *out) {
    const cJSON *prefix = cJSON_GetObjectItemCaseSensitive(schema, "prefixItems");
    const cJSON *items = cJSON_GetObjectItemCaseSensitive(schema, "items");
    const char *prefix_key = "prefixItems";
    if (prefix == NULL && cJSON_IsArray(items)) { /* as in drafts before 2020-12 */
        prefix = items;
        prefix_key = "items";
        items = cJSON_GetObjectItemCaseSensitive(schema, "additionalItems");
    }
    if (prefix != NULL && !cJSON_IsArray(prefix))
        return schema_refuse(c, "prefixItems must be an array");
    if (schema_count(c, schema, "minItems", 0, GRAMMAR_MAX_REPEAT, &out->min) != 0 ||
        schema_count(c, schema, "maxItems", -1, GRAMMAR_MAX_REPEAT, &out->max) != 0 ||
        (prefix != NULL && read_prefix(c, prefix, prefix_key, out) != 0))
        return -1;
    out->has_rest = !cJSON_IsFalse(items) && !(items == NULL && prefix != NULL);
    if (items == NULL || !out->has_rest)
        out->rest = schema_any_value(c);
    else if (schema_child(c, items, "items", &out->rest) != 0)
        return -1;
    if (!out->has_rest && (out->max < 0 || out->max > out->num_prefix))
        out->max = out->num_prefix;
    if (out->max >= 0 && out->min > out->max)
        return schema_decline(c, "fewer items are allowed than there must be");
    return 0;
}

/* The items behind the first `index`, which is >= 1, each behind a comma. */
static grammar_node items_behind(struct schema_context *c, const struct array *array, int index) {
    int first_rest = array->num_prefix > index ? array->num_prefix : index;
    int max = array->max < 0 ? -1 : array->max > first_rest ? array->max - first_rest : 0;
    int min = array->min > first_rest ? array->min - first_rest : 0;
    grammar_node rest[] = {schema_comma(c), array->rest};
    grammar_node node = grammar_repeat(c->builder, schema_sequence(c, rest, 2), min, max);
    for (int i = array->num_prefix - 1; i >= index; i--) {
        if (array->max >= 0 && i >= array->max)
            continue;
        grammar_node items[] = {schema_comma(c), array->prefix[i], node};
        node = schema_sequence(c, items, 3);
        if (i >= array->min)
            node = grammar_repeat(c->builder, node, 0, 1);
    }
    return node;
}

int schema_array(struct schema_context *c, const cJSON *schema, grammar_node *out) {
    struct array *array = calloc(1, sizeof(*array));
    if (array == NULL)
        return api_error_set_memory(c->err);
    int result = read_array(c, schema, array);
    if (result == 0) {
        grammar_node items[] = {array->num_prefix > 0 ? array->prefix[0] : array->rest,
                                items_behind(c, array, 1)};
        grammar_node content = schema_sequence(c, items, 2);
        if (array->min == 0)
            content = grammar_repeat(c->builder, content, 0, array->max == 0 ? 0 : 1);
        grammar_node all[] = {schema_text(c, "["), content, schema_text(c, "]")};
        *out = schema_sequence(c, all, 3);
    }
    free(array);
    return result;
}

/* --- Objects --- */

struct property {
    const char *name;
    const cJSON *schema; /* NULL: that of additional properties */
    bool required;
    grammar_node member; /* name, colon, value */
};

struct object {
    struct property *properties;
    int num_properties;
    bool has_additional;
    grammar_node additional; /* a value */
    grammar_node any_member; /* a name of its own, colon, value */
};

/* Looks from `first` on, and then before it: names mostly come in the order of the properties. *out
 * is -1 when there is no such property. */
static int find_property(struct schema_context *c, const struct object *object, const char *name,
                         int first, int *out) {
    int count = object->num_properties, steps = 0;
    *out = -1;
    while (*out < 0 && steps < count) {
        int i = (first + steps++) % count;
        if (strcmp(object->properties[i].name, name) == 0)
            *out = i;
    }
    return schema_add_steps(c, (size_t)steps);
}

static int mark_required(struct schema_context *c, const cJSON *required, struct object *object) {
    const cJSON *item;
    int i = -1;
    if (required != NULL && !cJSON_IsArray(required))
        return schema_refuse(c, "required must be an array of strings");
    cJSON_ArrayForEach(item, required) {
        if (!cJSON_IsString(item))
            return schema_refuse(c, "required must be an array of strings");
        if (find_property(c, object, item->valuestring, i + 1, &i) != 0)
            return -1;
        if (i < 0 && !object->has_additional)
            return schema_decline(c, "required names a property that properties does not have");
        if (i < 0) {
            i = object->num_properties++;
            object->properties[i] = (struct property){item->valuestring};
        }
        object->properties[i].required = true;
    }
    return 0;
}

/* Reads whether an object of this schema may have other properties: what it says, else where it
 * names none itself. */
static int read_additional(struct schema_context *c, const cJSON *schema, const cJSON *properties,
                           struct object *object) {
    const cJSON *additional = cJSON_GetObjectItemCaseSensitive(schema, "additionalProperties");
    if (cJSON_IsNull(additional))
        additional = NULL;
    object->has_additional = additional != NULL ? !cJSON_IsFalse(additional) : properties == NULL;
    if (!object->has_additional)
        return 0;
    if (additional != NULL && !cJSON_IsTrue(additional))
        return schema_child(c, additional, "additionalProperties", &object->additional);
    object->additional = schema_any_value(c);
    return 0;
}

static int make_member(struct schema_context *c, struct object *object, struct property *property) {
    grammar_node items[] = {GRAMMAR_FAILED, schema_colon(c), object->additional};
    if (schema_quoted(c, property->name, &items[0]) != 0)
        return -1;
    char label[96];
    snprintf(label, sizeof(label), "properties.%s", property->name);
    if (property->schema != NULL && schema_child(c, property->schema, label, &items[2]) != 0)
        return -1;
    property->member = schema_sequence(c, items, 3);
    return 0;
}

static int read_object(struct schema_context *c, const cJSON *schema, struct object *object) {
    const cJSON *properties = cJSON_GetObjectItemCaseSensitive(schema, "properties"), *item;
    const cJSON *required = cJSON_GetObjectItemCaseSensitive(schema, "required");
    if (properties != NULL && !cJSON_IsObject(properties))
        return schema_refuse(c, "properties must be an object");
    size_t count = 1;
    cJSON_ArrayForEach(item, properties) count++;
    cJSON_ArrayForEach(item, required) count++;
    object->properties = calloc(count, sizeof(*object->properties));
    if (object->properties == NULL)
        return api_error_set_memory(c->err);
    cJSON_ArrayForEach(item, properties) object->properties[object->num_properties++] =
        (struct property){item->string, item};
    if (count > JSON_SCHEMA_MAX_SCHEMAS)
        return schema_decline(c, "there are more than %d properties", JSON_SCHEMA_MAX_SCHEMAS);
    if (read_additional(c, schema, properties, object) != 0 ||
        mark_required(c, required, object) != 0)
        return -1;
    for (int i = 0; i < object->num_properties; i++)
        if (make_member(c, object, &object->properties[i]) != 0)
            return -1;
    return 0;
}

/* --- The names of additional properties: strings that are none of the object's own --- */

static int compare_names(const void *a, const void *b) {
    return strcmp(((const struct property *)a)->name, ((const struct property *)b)->name);
}

/* Returns whether a name can be kept apart byte by byte: JSON writes it as it is. */
static bool is_plain(const char *name) {
    for (; *name != '\0'; name++)
        if (*name < ' ' || *name > '~' || *name == '"' || *name == '\\')
            return false;
    return true;
}

/* Strings that begin like the sorted names do before byte `at`, and equal none of them, without
 * their quotes. */
static grammar_node other_names(struct schema_context *c, const struct property *names, int count,
                                size_t at, grammar_node rest) {
    grammar_node items[132]; /* a plain name has printable ASCII */
    struct character_range taken[132] = {{0, 0x1f}, {'"', '"'}, {'\\', '\\'}};
    int num_items = 0, num_taken = 3;
    for (int first = 0, end; first < count; first = end) {
        char byte = names[first].name[at];
        for (end = first + 1; end < count && names[end].name[at] == byte;)
            end++;
        if (byte == '\0')
            continue;
        grammar_node longer[] = {grammar_literal(c->builder, &byte, 1),
                                 other_names(c, names + first, end - first, at + 1, rest)};
        items[num_items++] = schema_sequence(c, longer, 2);
        taken[num_taken++] = (struct character_range){(uint8_t)byte, (uint8_t)byte};
    }
    grammar_node apart[] = {grammar_characters(c->builder, taken, num_taken, true), rest};
    items[num_items++] = schema_sequence(c, apart, 2);
    if (names[0].name[at] != '\0')
        items[num_items++] = schema_text(c, "");
    return grammar_alternatives(c->builder, items, num_items);
}

/* Names with other characters than printable ASCII, or very long ones, are not kept apart. */
static int make_any_member(struct schema_context *c, struct object *object) {
    size_t bytes = 0;
    struct property *names = malloc(((size_t)object->num_properties + 1) * sizeof(*names));
    if (names == NULL)
        return api_error_set_memory(c->err);
    int count = 0;
    for (int i = 0; i < object->num_properties; i++) {
        if (!is_plain(object->properties[i].name) || strlen(object->properties[i].name) > 64)
            continue;
        names[count++] = object->properties[i];
        bytes += strlen(object->properties[i].name);
    }
    grammar_node name = schema_any_string(c);
    if (count > 0 && bytes <= 2048) {
        qsort(names, (size_t)count, sizeof(*names), compare_names);
        grammar_node quote = schema_text(c, "\"");
        grammar_node rest = grammar_repeat(c->builder, schema_character(c), 0, -1);
        grammar_node items[] = {quote, other_names(c, names, count, 0, rest), quote};
        name = schema_sequence(c, items, 3);
    }
    free(names);
    grammar_node member[] = {name, schema_colon(c), object->additional};
    object->any_member = schema_sequence(c, member, 3);
    return 0;
}

/* --- The chains --- */

static grammar_node as_rule(struct schema_context *c, grammar_node body) {
    grammar_node rule = grammar_rule(c->builder);
    grammar_define(c->builder, rule, body);
    return rule;
}

/* From the last property to the first, `members` is one member or more of those from here on, and
 * `behind` what may follow a member: nothing, or a comma and such members. The comma stands before
 * the choice, so that hundreds of optional properties are not hundreds of parse states twice. */
static grammar_node members_of(struct schema_context *c, const struct object *object) {
    grammar_node nothing = schema_sequence(c, NULL, 0), behind = nothing, members = nothing;
    bool may_end = true, has_members = object->has_additional;
    if (object->has_additional) {
        grammar_node more[] = {schema_comma(c), object->any_member};
        behind = grammar_repeat(c->builder, schema_sequence(c, more, 2), 0, -1);
        members = schema_sequence(c, (grammar_node[]){object->any_member, behind}, 2);
    }
    for (int i = object->num_properties - 1; i >= 0; i--) {
        const struct property *property = &object->properties[i];
        grammar_node own[] = {property->member, behind};
        grammar_node choices[] = {schema_sequence(c, own, 2), members};
        bool can_skip = !property->required && has_members;
        members = can_skip ? grammar_alternatives(c->builder, choices, 2) : choices[0];
        if (i % RULE_EVERY == 0 && i > 0)
            members = as_rule(c, members);
        has_members = true;
        may_end = may_end && !property->required;
        grammar_node next[] = {schema_comma(c), members};
        behind = schema_sequence(c, next, 2);
        if (may_end)
            behind = grammar_repeat(c->builder, behind, 0, 1);
    }
    return may_end ? grammar_repeat(c->builder, members, 0, has_members ? 1 : 0) : members;
}

int schema_object(struct schema_context *c, const cJSON *schema, grammar_node *out) {
    struct object object = {0};
    int result = read_object(c, schema, &object);
    if (result == 0 && object.has_additional)
        result = make_any_member(c, &object);
    if (result == 0) {
        grammar_node items[] = {schema_text(c, "{"), members_of(c, &object), schema_text(c, "}")};
        *out = schema_sequence(c, items, 3);
    }
    free(object.properties);
    return result;
}
