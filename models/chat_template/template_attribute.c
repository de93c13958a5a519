/* Finds what `.` and `[]` name, in the order of Jinja's sandbox: an attribute looks for Python's
 * methods first and for a key then, an item the other way round. */
#include "models/chat_template/template_attribute.h"

#include "models/chat_template/template_builtins.h"
#include "models/chat_template/template_call.h"
#include "models/chat_template/template_characters.h"
#include "models/chat_template/template_repr.h"
#include "models/chat_template/template_type.h"

#include <stdio.h>
#include <stdlib.h>

static bool find_number(const struct template_loop *loop, struct text name, int64_t *out) {
    int64_t index = (int64_t)loop->index, length = (int64_t)loop->items.length;
    const struct {
        const char *name;
        int64_t value;
    } numbers[] = {{"index", index + 1},
                   {"index0", index},
                   {"revindex", length - index},
                   {"revindex0", length - index - 1},
                   {"length", length},
                   {"depth", 1},
                   {"depth0", 0}};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        if (text_is(name, numbers[i].name)) {
            *out = numbers[i].value;
            return true;
        }
    return false;
}

static struct template_value undefined_of(const struct template_value *value, struct text name) {
    struct template_value undefined = template_data_undefined(name);
    undefined.origin = value->kind;
    return undefined;
}

static bool is_internal(struct text name) {
    return name.length > 4 && memcmp(name.data, "__", 2) == 0 && text_ends_with(name, "__");
}

/* Returns 1 if Python's type has a method of that name, also one that templates may not use. */
static int find_method(struct template_run *run, const struct template_value *value,
                       struct text name, struct template_value *out) {
    const struct template_function *function =
        template_builtins_method(run->builtins, value->kind, name);
    if (function != NULL) {
        struct template_method *method = template_arena_alloc(run->arena, sizeof(*method));
        if (method == NULL)
            return template_run_fail_memory(run);
        *method = (struct template_method){*value, function};
        *out = (struct template_value){.kind = TEMPLATE_METHOD, .method = method};
        return 1;
    }
    if (!template_builtins_is_refused(run->builtins, value->kind, name) && !is_internal(name))
        return 0;
    *out = undefined_of(value, name);
    out->is_unsafe = true;
    return 1;
}

static bool find_in_loop(const struct template_loop *loop, struct text name,
                         struct template_value *out) {
    const struct template_sequence *items = &loop->items;
    bool is_first = loop->index == 0, is_last = loop->index + 1 == items->length;
    int64_t number;
    if (find_number(loop, name, &number))
        *out = template_data_int(number);
    else if (text_is(name, "first"))
        *out = template_data_bool(is_first);
    else if (text_is(name, "last"))
        *out = template_data_bool(is_last);
    else if (text_is(name, "previtem"))
        *out = is_first ? template_data_undefined(name) : items->items[loop->index - 1];
    else if (text_is(name, "nextitem"))
        *out = is_last ? template_data_undefined(name) : items->items[loop->index + 1];
    else
        return false;
    return true;
}

int template_attribute_get(struct template_run *run, const struct template_value *value,
                           struct text name, struct template_value *out) {
    struct template_value from = *value;
    if (template_type_check_defined(run, &from) != 0)
        return -1;
    if (from.kind == TEMPLATE_LOOP && find_in_loop(from.loop, name, out))
        return 0;
    if (from.kind == TEMPLATE_MACRO)
        return template_run_fail(run, "macros have no attributes");
    int found = find_method(run, &from, name, out);
    if (found != 0)
        return found < 0 ? -1 : 0;
    const struct template_value *item = NULL;
    if (from.kind == TEMPLATE_MAP || from.kind == TEMPLATE_NAMESPACE)
        item = template_data_map_find_text(run->arena, from.mapping, name);
    *out = item != NULL ? *item : undefined_of(&from, name);
    return 0;
}

/* --- Items -------------------------------------------------------------------------------------
 */

static int undefined_element(struct template_run *run, const struct template_value *value,
                             const struct template_value *key, struct template_value *out) {
    struct template_value name;
    struct template_builder builder = {.arena = run->arena};
    if (key->kind > TEMPLATE_STRING || key->kind == TEMPLATE_UNDEFINED)
        name = template_data_server("?");
    else if (template_repr_str(run, key, &builder) != 0 ||
             template_run_finish(run, &builder, &name) != 0)
        return -1;
    *out = undefined_of(value, template_string_text(&name));
    return 0;
}

static bool character_at(const struct template_value *string, int64_t index,
                         struct template_value *out) {
    struct text text = template_string_text(string);
    if (index < 0)
        index += (int64_t)template_characters_count(text);
    if (index < 0)
        return false;
    size_t begin = template_characters_offset(text, (size_t)index), end = begin;
    if (begin == text.length)
        return false;
    template_characters_next(text, &end);
    *out = template_data_part(*string, begin, end);
    return true;
}

static bool item_at(const struct template_value *value, int64_t index, struct template_value *out) {
    int64_t length = (int64_t)value->sequence->length;
    if (index < 0)
        index += length;
    if (index < 0 || index >= length)
        return false;
    *out = value->sequence->items[index];
    return true;
}

static bool is_indexed(const struct template_value *value) {
    return value->kind >= TEMPLATE_LIST && value->kind <= TEMPLATE_RANGE;
}

int template_attribute_item(struct template_run *run, const struct template_value *value,
                            const struct template_value *key, struct template_value *out) {
    struct template_value from = *value;
    int64_t index;
    if (template_type_check_defined(run, &from) != 0)
        return -1;
    if (from.kind == TEMPLATE_MAP && template_data_is_key(key)) {
        const struct template_value *item = template_data_map_find(run->arena, from.mapping, key);
        if (item != NULL) {
            *out = *item;
            return 0;
        }
    }
    if (template_type_int(key, &index)) {
        if (from.kind == TEMPLATE_STRING) {
            if (template_run_charge(run, from.string.length / 16) != 0)
                return -1;
            if (character_at(&from, index, out))
                return 0;
        } else if (is_indexed(&from) && item_at(&from, index, out)) {
            return 0;
        }
    }
    if (key->kind != TEMPLATE_STRING)
        return undefined_element(run, &from, key, out);
    struct text name = template_string_text(key);
    return from.kind == TEMPLATE_MAP
               ? (find_method(run, &from, name, out) != 0 ? 0
                                                          : (*out = undefined_of(&from, name), 0))
               : template_attribute_get(run, &from, name, out);
}

static bool is_index(struct text part, int64_t *out) {
    *out = 0;
    for (size_t i = 0; i < part.length; i++) {
        if (part.data[i] < '0' || part.data[i] > '9' || i > 9)
            return false;
        *out = *out * 10 + (part.data[i] - '0');
    }
    return part.length > 0;
}

int template_attribute_path(struct template_run *run, const struct template_value *value,
                            const struct template_value *path, struct template_value *out) {
    struct template_value at = *value;
    if (path->kind != TEMPLATE_STRING)
        return template_attribute_item(run, &at, path, out);
    struct text rest = template_string_text(path);
    for (bool more = true; more;) {
        const char *dot = rest.length > 0 ? memchr(rest.data, '.', rest.length) : NULL;
        struct text part = {rest.data, dot != NULL ? (size_t)(dot - rest.data) : rest.length};
        int64_t index;
        struct template_value key = is_index(part, &index)
                                        ? template_data_int(index)
                                        : template_data_text(part, TEMPLATE_ORIGIN_SERVER);
        if (template_attribute_item(run, &at, &key, &at) != 0)
            return -1;
        more = dot != NULL;
        if (more)
            rest = (struct text){dot + 1, rest.length - part.length - 1};
    }
    *out = at;
    return 0;
}

/* --- Slices ------------------------------------------------------------------------------------
 */

/* Python's slice.indices: which items, of so many, and how many they are. */
struct range {
    int64_t start, step, num;
};

static int64_t clamp(int64_t bound, int64_t length, int64_t low, int64_t high) {
    if (bound < 0)
        bound = bound < -length ? low : bound + length;
    return bound > high ? high : bound < low ? low : bound;
}

static int make_range(struct template_run *run, const struct template_value bounds[3],
                      int64_t length, struct range *out) {
    int64_t given[3] = {0, 0, 1};
    for (int i = 0; i < 3; i++)
        if (bounds[i].kind != TEMPLATE_NONE && !template_type_int(&bounds[i], &given[i])) {
            if (template_type_check_defined(run, &bounds[i]) != 0)
                return -1;
            return template_run_fail(run, "slice indices must be integers or None, not %s",
                                     template_type_name(&bounds[i]));
        }
    int64_t step = given[2];
    if (step == 0)
        return template_run_fail(run, "slice step cannot be zero");
    if (step < -length - 1 || step > length + 1) /* takes one item at most, whatever it is */
        step = step < 0 ? -length - 1 : length + 1;
    int64_t low = step < 0 ? -1 : 0, high = step < 0 ? length - 1 : length;
    int64_t start = bounds[0].kind == TEMPLATE_NONE ? (step < 0 ? high : 0)
                                                    : clamp(given[0], length, low, high);
    int64_t stop = bounds[1].kind == TEMPLATE_NONE ? (step < 0 ? -1 : high)
                                                   : clamp(given[1], length, low, high);
    int64_t distance = step < 0 ? start - stop : stop - start, size = step < 0 ? -step : step;
    *out = (struct range){start, step, distance > 0 ? (distance + size - 1) / size : 0};
    return 0;
}

static int slice_string(struct template_run *run, const struct template_value *string,
                        const struct template_value bounds[3], struct template_value *out) {
    struct text text = template_string_text(string);
    struct template_value value = *string;
    struct template_sequence characters;
    struct range range;
    if (template_run_charge_text(run, text.length) != 0 ||
        make_range(run, bounds, template_type_length(string), &range) != 0)
        return -1;
    if (range.step == 1 || range.num == 0) {
        size_t begin = range.num == 0 && range.step != 1
                           ? 0
                           : template_characters_offset(text, (size_t)range.start);
        struct text behind = {text.data + begin, text.length - begin};
        size_t bytes = template_characters_offset(behind, (size_t)range.num);
        *out = template_data_part(value, begin, begin + bytes);
        return 0;
    }
    struct template_builder builder = {.arena = run->arena, .is_markup = value.is_markup};
    if (template_type_items(run, &value, &characters) != 0)
        return -1;
    for (int64_t i = 0; i < range.num; i++)
        template_builder_add_string(&builder, &characters.items[range.start + i * range.step]);
    return template_run_finish(run, &builder, out);
}

/* Without a step the items stay where they are. */
static int slice_sequence(struct template_run *run, const struct template_value *value,
                          const struct template_value bounds[3], struct template_value *out) {
    struct template_value made;
    struct range range;
    struct template_value *items = value->sequence->items;
    if (make_range(run, bounds, (int64_t)value->sequence->length, &range) != 0)
        return -1;
    bool copies = range.step != 1 && range.num > 0;
    if (template_run_charge(run, copies ? (size_t)range.num / 8 : 0) != 0)
        return -1;
    if (!template_data_sequence(run->arena, value->kind, &made) ||
        (copies && !template_data_reserve(run->arena, made.sequence, (size_t)range.num)))
        return template_run_fail_memory(run);
    for (int64_t i = 0; copies && i < range.num; i++)
        made.sequence->items[i] = items[range.start + i * range.step];
    if (!copies && range.num > 0)
        *made.sequence =
            (struct template_sequence){.items = items + range.start, .capacity = (size_t)range.num};
    made.sequence->length = (size_t)range.num;
    *out = made;
    return 0;
}

int template_attribute_slice(struct template_run *run, const struct template_value *value,
                             const struct template_value bounds[3], struct template_value *out) {
    if (template_type_check_defined(run, value) != 0)
        return -1;
    if (value->kind == TEMPLATE_STRING)
        return slice_string(run, value, bounds, out);
    if (is_indexed(value))
        return slice_sequence(run, value, bounds, out);
    return template_run_fail(run, "'%s' object cannot be sliced", template_type_name(value));
}
