#include "server/api/conversation/tool_grammar.h"

#include "config/json/json_field.h"

#include <string.h>

/* What a schema admits; 0: nothing is known about it. */
enum {
    ADMITS_STRING = 1,
    ADMITS_NULL = 2,
    ADMITS_OTHER = 4,
};

static unsigned admits_type(const char *type) {
    if (strcmp(type, "string") == 0)
        return ADMITS_STRING;
    return strcmp(type, "null") == 0 ? ADMITS_NULL : ADMITS_OTHER;
}

static unsigned admits_value(const cJSON *value) {
    if (cJSON_IsString(value))
        return ADMITS_STRING;
    return cJSON_IsNull(value) ? ADMITS_NULL : ADMITS_OTHER;
}

/* Returns what a schema admits. Looks at the schemas of an anyOf or oneOf, but not at those within
 * them. */
static unsigned admitted(const cJSON *schema, bool is_inner) {
    static const char *const choices[] = {"anyOf", "oneOf"};
    const cJSON *type = json_given_member(schema, "type"), *item;
    const cJSON *constant = cJSON_GetObjectItemCaseSensitive(schema, "const");
    unsigned found = 0;
    if (cJSON_IsString(type))
        return admits_type(type->valuestring);
    if (cJSON_IsArray(type)) {
        cJSON_ArrayForEach(item, type) found |=
            cJSON_IsString(item) ? admits_type(item->valuestring) : (unsigned)ADMITS_OTHER;
        return found;
    }
    if (constant != NULL)
        return admits_value(constant);
    cJSON_ArrayForEach(item, json_given_member(schema, "enum")) found |= admits_value(item);
    for (size_t i = 0; found == 0 && !is_inner && i < sizeof(choices) / sizeof(choices[0]); i++) {
        cJSON_ArrayForEach(item, json_given_member(schema, choices[i])) {
            unsigned inner = admitted(item, true);
            found |= inner == 0 ? (unsigned)ADMITS_OTHER : inner;
        }
    }
    return found;
}

enum parameter_type tool_types_of_schema(const cJSON *schema) {
    switch (admitted(schema, false)) {
    case ADMITS_STRING:
        return PARAMETER_STRING;
    case ADMITS_STRING | ADMITS_NULL:
        return PARAMETER_NULLABLE_STRING;
    default:
        return PARAMETER_ANY;
    }
}

void tool_types_append(const struct conversation *conversation, struct byte_buffer *types) {
    const cJSON *property;
    for (int i = 0; i < conversation->num_tools; i++) {
        const struct tool *tool = &conversation->tools[i];
        parameter_types_begin(types, tool->name);
        cJSON_ArrayForEach(property, json_given_member(tool->parameters, "properties")) {
            enum parameter_type type = tool_types_of_schema(property);
            if (type != PARAMETER_ANY)
                parameter_types_add(types, type, property->string);
        }
        parameter_types_end(types);
    }
}
