#include "models/chat_template/template_type.h"

#include "models/chat_template/template_characters.h"

const char *template_type_name(const struct template_value *value) {
    static const char *const names[] = {
        [TEMPLATE_MISSING] = "missing",  [TEMPLATE_UNDEFINED] = "Undefined",
        [TEMPLATE_NONE] = "NoneType",    [TEMPLATE_BOOL] = "bool",
        [TEMPLATE_INT] = "int",          [TEMPLATE_FLOAT] = "float",
        [TEMPLATE_STRING] = "str",       [TEMPLATE_LIST] = "list",
        [TEMPLATE_TUPLE] = "tuple",      [TEMPLATE_RANGE] = "range",
        [TEMPLATE_VIEW] = "dict view",   [TEMPLATE_ITERATOR] = "generator",
        [TEMPLATE_MAP] = "dict",         [TEMPLATE_NAMESPACE] = "Namespace",
        [TEMPLATE_LOOP] = "LoopContext", [TEMPLATE_FUNCTION] = "function",
        [TEMPLATE_METHOD] = "method",    [TEMPLATE_MACRO] = "Macro",
    };
    return names[value->kind];
}

bool template_type_is_true(const struct template_value *value) {
    switch (value->kind) {
    case TEMPLATE_MISSING:
    case TEMPLATE_UNDEFINED:
    case TEMPLATE_NONE:
        return false;
    case TEMPLATE_BOOL:
        return value->boolean;
    case TEMPLATE_INT:
        return value->integer != 0;
    case TEMPLATE_FLOAT:
        return value->real != 0;
    case TEMPLATE_STRING:
        return value->string.length > 0;
    case TEMPLATE_LIST:
    case TEMPLATE_TUPLE:
    case TEMPLATE_RANGE:
    case TEMPLATE_VIEW:
        return value->sequence->length > 0;
    case TEMPLATE_MAP:
        return value->mapping->length > 0;
    default:
        return true;
    }
}

bool template_type_int(const struct template_value *value, int64_t *out) {
    if (value->kind != TEMPLATE_INT && value->kind != TEMPLATE_BOOL)
        return false;
    *out = value->kind == TEMPLATE_INT ? value->integer : value->boolean;
    return true;
}

bool template_type_number(const struct template_value *value, double *out) {
    int64_t integer;
    if (value->kind == TEMPLATE_FLOAT)
        *out = value->real;
    else if (template_type_int(value, &integer))
        *out = (double)integer;
    else
        return false;
    return true;
}

static const char *type_or_none(uint8_t kind) {
    struct template_value value = {.kind = kind};
    return kind == TEMPLATE_NONE ? "None" : template_type_name(&value);
}

int template_type_check_defined(struct template_run *run, const struct template_value *value) {
    int length = value->string.length < 200 ? (int)value->string.length : 200;
    if (value->kind != TEMPLATE_UNDEFINED)
        return 0;
    if (value->is_unsafe)
        return template_run_fail(run, "access to attribute '%.*s' of '%s' object is unsafe", length,
                                 value->string.data, type_or_none(value->origin));
    if (value->origin == TEMPLATE_MISSING)
        return template_run_fail(run, "'%.*s' is undefined", length, value->string.data);
    return template_run_fail(run, "'%s%s' has no attribute '%.*s'", type_or_none(value->origin),
                             value->origin == TEMPLATE_NONE ? "" : " object", length,
                             value->string.data);
}

/* --- Items and length --------------------------------------------------------------------------
 */

static int characters(struct template_run *run, const struct template_value *string,
                      struct template_sequence *out) {
    struct text text = template_string_text(string);
    size_t num = template_characters_count(text);
    *out = (struct template_sequence){0};
    if (template_run_charge(run, num / 8) != 0)
        return -1;
    if (!template_data_reserve(run->arena, out, num))
        return template_run_fail_memory(run);
    for (size_t begin = 0, end = 0; end < text.length; begin = end) {
        template_characters_next(text, &end);
        struct template_value character = template_data_part(*string, begin, end);
        character.is_markup = false;
        if (!template_data_append(run->arena, out, character))
            return template_run_fail_memory(run);
    }
    return 0;
}

static int keys(struct template_run *run, const struct template_mapping *map,
                struct template_sequence *out) {
    *out = (struct template_sequence){0};
    if (template_run_charge(run, map->length / 8) != 0)
        return -1;
    if (!template_data_reserve(run->arena, out, map->length))
        return template_run_fail_memory(run);
    for (size_t i = 0; i < map->length; i++)
        out->items[i] = map->entries[i].key;
    out->length = map->length;
    return 0;
}

int template_type_items(struct template_run *run, const struct template_value *value,
                        struct template_sequence *out) {
    switch (value->kind) {
    case TEMPLATE_UNDEFINED:
        *out = (struct template_sequence){0};
        return 0;
    case TEMPLATE_STRING:
        return characters(run, value, out);
    case TEMPLATE_LIST:
    case TEMPLATE_TUPLE:
    case TEMPLATE_RANGE:
    case TEMPLATE_VIEW:
        *out = *value->sequence;
        return 0;
    case TEMPLATE_ITERATOR:
        *out = *value->sequence;
        if (out->length > 0)
            out->items += out->taken;
        out->length -= out->taken;
        value->sequence->taken = value->sequence->length;
        return 0;
    case TEMPLATE_MAP:
        return keys(run, value->mapping, out);
    default:
        return template_run_fail(run, "'%s' object is not iterable", template_type_name(value));
    }
}

int64_t template_type_length(const struct template_value *value) {
    switch (value->kind) {
    case TEMPLATE_UNDEFINED:
        return 0;
    case TEMPLATE_STRING:
        return (int64_t)template_characters_count(
            (struct text){value->string.data, value->string.length});
    case TEMPLATE_LIST:
    case TEMPLATE_TUPLE:
    case TEMPLATE_RANGE:
    case TEMPLATE_VIEW:
        return (int64_t)value->sequence->length;
    case TEMPLATE_MAP:
        return (int64_t)value->mapping->length;
    default:
        return -1;
    }
}
