/* The functions, and the methods of maps, of the variable `loop` and of strings. */
#include "models/chat_template/template_characters.h"
#include "models/chat_template/template_run.h"
#include "models/chat_template/template_strings.h"
#include "models/chat_template/template_type.h"

#include <stdlib.h>
#include <time.h>

/* --- Functions: Jinja's own, and those Transformers adds --- */

/* Jinja's sandbox allows no more either. */
enum { MAX_RANGE = 100000, MAX_TIME_BYTES = 4096 };

TEMPLATE_BODY(make_range) {
    int64_t start, stop, step;
    struct template_value made;
    if (template_call_get_int(run, call, 0, 0, &start) != 0 ||
        template_call_get_int(run, call, 1, 0, &stop) != 0 ||
        template_call_get_int(run, call, 2, 1, &step) != 0)
        return -1;
    if (call->given[1].kind == TEMPLATE_MISSING) {
        stop = start;
        start = 0;
    }
    if (step == 0)
        return template_run_fail(run, "range() arg 3 must not be zero");
    __int128 distance = step > 0 ? (__int128)stop - start : (__int128)start - stop;
    __int128 size = step > 0 ? (__int128)step : -(__int128)step;
    __int128 num = distance > 0 ? (distance + size - 1) / size : 0;
    if (num > MAX_RANGE)
        return template_run_fail(run, "a range has at most %d items", MAX_RANGE);
    if (template_run_charge(run, (size_t)num / 4) != 0)
        return -1;
    if (!template_value_sequence(run->arena, TEMPLATE_RANGE, &made) ||
        !template_value_reserve(run->arena, made.sequence, (size_t)num))
        return template_run_fail_memory(run);
    for (int64_t i = 0; i < (int64_t)num; i++)
        made.sequence->items[i] = template_value_int(start + i * step);
    made.sequence->length = (size_t)num;
    *out = made;
    return 0;
}

/* Makes a map of a map's entries and of the keywords. */
static int make_map(struct template_run *run, const struct template_call *call,
                    enum template_kind kind, struct template_value *out) {
    const struct template_arguments *arguments = call->arguments;
    struct template_value made;
    bool has_map = arguments->num == 1 && arguments->items[0].kind == TEMPLATE_MAP;
    if (arguments->num > 0 && !has_map)
        return template_run_fail(run, "a dict is made of at most 1 argument, a mapping");
    if (!template_value_map(run->arena, kind, &made) ||
        (has_map &&
         !template_value_map_update(run->arena, made.mapping, arguments->items[0].mapping)) ||
        (arguments->keywords != NULL &&
         !template_value_map_update(run->arena, made.mapping, arguments->keywords)))
        return template_run_fail_memory(run);
    *out = made;
    return 0;
}

TEMPLATE_BODY(make_dict) {
    return make_map(run, call, TEMPLATE_MAP, out);
}

/* Transformers refuses names that begin with an underscore. */
TEMPLATE_BODY(make_namespace) {
    struct template_value made;
    if (make_map(run, call, TEMPLATE_NAMESPACE, &made) != 0)
        return -1;
    for (size_t i = 0; i < made.mapping->length; i++) {
        struct text name = template_string_text(&made.mapping->entries[i].key);
        if (name.length > 0 && name.data[0] == '_')
            return template_run_fail(run, "a namespace cannot have the attribute '%.*s'",
                                     template_run_shown(name), name.data);
    }
    *out = made;
    return 0;
}

TEMPLATE_BODY(raise_exception) {
    struct template_value message;
    if (template_repr_string(run, &call->given[0], &message) != 0)
        return -1;
    int length = message.string.length < 400 ? (int)message.string.length : 400;
    return template_run_fail(run, "%.*s", length, message.string.data);
}

TEMPLATE_BODY(strftime_now) {
    char format[256], text[MAX_TIME_BYTES];
    struct template_value given;
    struct tm local;
    time_t now = (time_t)run->now;
    if (template_call_get_string(run, call, 0, "", &given) != 0)
        return -1;
    if (given.string.length >= sizeof(format) || localtime_r(&now, &local) == NULL)
        return template_run_fail(run, "strftime_now: the format has more than %zu bytes",
                                 sizeof(format) - 1);
    memcpy(format, given.string.data, given.string.length);
    format[given.string.length] = '\0';
    size_t length = strftime(text, sizeof(text), format, &local);
    return template_run_copy(run, (struct text){text, length}, out);
}

const struct template_function template_functions[] = {
    {"range", make_range, "start stop step", 1}, {"dict", make_dict, NULL, 0},
    {"namespace", make_namespace, NULL, 0},      {"raise_exception", raise_exception, "message", 1},
    {"strftime_now", strftime_now, "format", 1}, {NULL, NULL, NULL, 0},
};

/* --- Maps --- */

TEMPLATE_BODY(get) {
    const struct template_value *item = NULL;
    if (template_value_is_key(&call->given[0]))
        item = template_value_map_find(run->arena, call->self->mapping, &call->given[0]);
    else if (call->given[0].kind != TEMPLATE_UNDEFINED)
        return template_run_fail(run, "unhashable type: '%s'", template_type_name(&call->given[0]));
    if (item != NULL)
        *out = *item;
    else
        *out = call->given[1].kind == TEMPLATE_MISSING ? template_value_none() : call->given[1];
    return 0;
}

enum view { VIEW_KEYS, VIEW_VALUES, VIEW_ITEMS }; /* as template_repr.c names them */

TEMPLATE_BODY(make_view) {
    enum view view = (enum view)call->variant;
    const struct template_mapping *map = call->self->mapping;
    struct template_value made;
    if (template_run_charge(run, map->length / 4) != 0)
        return -1;
    if (!template_value_sequence(run->arena, TEMPLATE_VIEW, &made) ||
        !template_value_reserve(run->arena, made.sequence, map->length))
        return template_run_fail_memory(run);
    for (size_t i = 0; i < map->length; i++) {
        struct template_value pair[2] = {map->entries[i].key, map->entries[i].item};
        struct template_value *item = &made.sequence->items[i];
        if (view != VIEW_ITEMS)
            *item = pair[view == VIEW_VALUES];
        else if (!template_value_items(run->arena, TEMPLATE_TUPLE, pair, 2, item))
            return template_run_fail_memory(run);
    }
    made.sequence->length = map->length;
    made.origin = (uint8_t)view;
    *out = made;
    return 0;
}

/* --- Loops --- */

TEMPLATE_BODY(cycle) {
    size_t num = call->arguments->num;
    if (num == 0)
        return template_run_fail(run, "no items for cycling given");
    *out = call->arguments->items[call->self->loop->index % num];
    return 0;
}

TEMPLATE_BODY(changed) {
    struct template_loop *loop = call->self->loop;
    struct template_value seen;
    bool same = false;
    if (!template_value_items(run->arena, TEMPLATE_TUPLE, call->arguments->items,
                              call->arguments->num, &seen))
        return template_run_fail_memory(run);
    if (loop->last_seen.kind != TEMPLATE_MISSING &&
        template_type_equal(run, &loop->last_seen, &seen, &same) != 0)
        return -1;
    loop->last_seen = seen;
    *out = template_value_bool(!same);
    return 0;
}

/* --- Strings: case and ends --- */

TEMPLATE_BODY(change_case) {
    return template_strings_change_case(run, call->self, (enum template_strings_case)call->variant,
                                        out);
}

TEMPLATE_BODY(strip) {
    enum template_strip sides = (enum template_strip)call->variant;
    struct template_value chars;
    if (call->given[0].kind == TEMPLATE_MISSING || call->given[0].kind == TEMPLATE_NONE)
        return template_strings_strip(run, call->self, NULL, sides, out);
    if (template_call_get_string(run, call, 0, "", &chars) != 0)
        return -1;
    struct text text = template_string_text(&chars);
    return template_strings_strip(run, call->self, &text, sides, out);
}

/* At the end of the text, or at its start. */
static bool matches(struct text text, struct text part, bool at_end) {
    size_t begin = at_end ? text.length - part.length : 0;
    return part.length == 0 ||
           (part.length <= text.length && memcmp(text.data + begin, part.data, part.length) == 0);
}

/* A tuple holds choices. */
TEMPLATE_BODY(match_end) {
    const struct template_value *given = &call->given[0];
    struct template_value single;
    struct template_sequence choices = {.items = &single, .length = 1};
    bool found = false;
    if (given->kind == TEMPLATE_TUPLE)
        choices = *given->sequence;
    else if (template_call_get_string(run, call, 0, "", &single) != 0)
        return -1;
    for (size_t i = 0; !found && i < choices.length; i++) {
        if (choices.items[i].kind != TEMPLATE_STRING)
            return template_run_fail(run, "a tuple of choices must hold strings, not %s",
                                     template_type_name(&choices.items[i]));
        found = matches(template_string_text(call->self), template_string_text(&choices.items[i]),
                        call->variant);
    }
    *out = template_value_bool(found);
    return 0;
}

/* --- Search --- */

/* Finds the index of the character at which the part begins, or -1. */
TEMPLATE_BODY(find) {
    bool from_end = call->variant;
    struct text text = template_string_text(call->self);
    struct template_value part;
    if (template_call_get_string(run, call, 0, "", &part) != 0 ||
        template_run_charge_text(run, from_end ? text.length * 8 : 0) != 0)
        return -1;
    int64_t at = template_strings_find(text, template_string_text(&part), from_end);
    text.length = at < 0 ? 0 : (size_t)at;
    *out = template_value_int(at < 0 ? -1 : (int64_t)template_characters_count(text));
    return 0;
}

TEMPLATE_BODY(count) {
    struct text rest = template_string_text(call->self);
    struct template_value part;
    if (template_call_get_string(run, call, 0, "", &part) != 0)
        return -1;
    struct text needle = template_string_text(&part);
    int64_t num = needle.length == 0 ? template_type_length(call->self) + 1 : 0;
    for (int64_t at; needle.length > 0 && (at = template_strings_find(rest, needle, false)) >= 0;
         num++) {
        size_t taken = (size_t)at + needle.length;
        rest = (struct text){rest.data + taken, rest.length - taken};
    }
    *out = template_value_int(num);
    return 0;
}

/* --- Parts --- */

/* The parts of a split, in the order they are found. */
struct split {
    struct template_run *run;
    struct template_value string;
    struct text text;
    int64_t most; /* splits that may still be made; -1: any number */
    struct template_sequence *parts;
};

static int add_part(struct split *s, size_t begin, size_t end) {
    if (!template_value_append(s->run->arena, s->parts, template_value_part(s->string, begin, end)))
        return template_run_fail_memory(s->run);
    return template_run_charge(s->run, 1);
}

static int split_at(struct split *s, struct text separator) {
    size_t begin = 0;
    for (; s->most != 0; s->most--) {
        struct text rest = {s->text.data + begin, s->text.length - begin};
        int64_t at = template_strings_find(rest, separator, false);
        if (at < 0)
            break;
        if (add_part(s, begin, begin + (size_t)at) != 0)
            return -1;
        begin += (size_t)at + separator.length;
    }
    return add_part(s, begin, s->text.length);
}

static int rsplit_at(struct split *s, struct text separator) {
    size_t end = s->text.length;
    for (; s->most != 0; s->most--) {
        int64_t at = template_strings_find((struct text){s->text.data, end}, separator, true);
        if (at < 0)
            break;
        if (add_part(s, (size_t)at + separator.length, end) != 0)
            return -1;
        end = (size_t)at;
    }
    return add_part(s, 0, end);
}

static size_t skip(struct text text, size_t at, bool space) {
    for (size_t next = at; at < text.length; at = next)
        if (template_characters_is_space(template_characters_next(text, &next)) != space)
            break;
    return at;
}

static size_t skip_back(struct text text, size_t end, bool space) {
    while (end > 0) {
        size_t before = template_characters_before(text, end), next = before;
        if (template_characters_is_space(template_characters_next(text, &next)) != space)
            break;
        end = before;
    }
    return end;
}

static int split_space(struct split *s) {
    size_t begin = skip(s->text, 0, true);
    for (; begin < s->text.length && s->most != 0; s->most--) {
        size_t end = skip(s->text, begin, false);
        if (add_part(s, begin, end) != 0)
            return -1;
        begin = skip(s->text, end, true);
    }
    return begin < s->text.length ? add_part(s, begin, s->text.length) : 0;
}

static int rsplit_space(struct split *s) {
    size_t end = skip_back(s->text, s->text.length, true);
    for (; end > 0 && s->most != 0; s->most--) {
        size_t begin = skip_back(s->text, end, false);
        if (add_part(s, begin, end) != 0)
            return -1;
        end = skip_back(s->text, begin, true);
    }
    return end > 0 ? add_part(s, 0, end) : 0;
}

static void reverse(struct template_sequence *parts) {
    for (size_t i = 0, j = parts->length; i + 1 < j; i++) {
        struct template_value swapped = parts->items[i];
        parts->items[i] = parts->items[--j];
        parts->items[j] = swapped;
    }
}

TEMPLATE_BODY(split) {
    bool from_end = call->variant;
    struct split s = {run, *call->self, template_string_text(call->self), -1, NULL};
    struct template_value made, separator = template_value_none();
    bool by_space = call->given[0].kind == TEMPLATE_MISSING || call->given[0].kind == TEMPLATE_NONE;
    if ((!by_space && template_call_get_string(run, call, 0, "", &separator) != 0) ||
        template_call_get_int(run, call, 1, -1, &s.most) != 0)
        return -1;
    if (!by_space && separator.string.length == 0)
        return template_run_fail(run, "empty separator");
    if (!template_value_sequence(run->arena, TEMPLATE_LIST, &made))
        return template_run_fail_memory(run);
    s.parts = made.sequence;
    struct text text = template_string_text(&separator);
    int status = by_space ? (from_end ? rsplit_space(&s) : split_space(&s))
                          : (from_end ? rsplit_at(&s, text) : split_at(&s, text));
    if (from_end)
        reverse(made.sequence);
    *out = made;
    return status;
}

TEMPLATE_BODY(splitlines) {
    return template_strings_lines(run, call->self, template_call_get_flag(call, 0, false), out);
}

TEMPLATE_BODY(replace) {
    struct template_value old, by;
    int64_t most;
    if (template_call_get_string(run, call, 0, "", &old) != 0 ||
        template_call_get_string(run, call, 1, "", &by) != 0 ||
        template_call_get_int(run, call, 2, -1, &most) != 0)
        return -1;
    return template_strings_replace(run, call->self, template_string_text(&old), &by, most, out);
}

/* --- Putting together --- */

/* Escapes the items that are not Markup. */
static int join_markup(struct template_run *run, const struct template_value *separator,
                       const struct template_sequence *items, struct template_value *out) {
    struct template_builder builder = {.arena = run->arena, .is_markup = true};
    for (size_t i = 0; i < items->length; i++) {
        struct template_value item;
        if (template_strings_escape(run, &items->items[i], &item) != 0)
            return -1;
        if (i > 0)
            template_builder_add_string(&builder, separator);
        template_builder_add_string(&builder, &item);
    }
    return template_run_finish(run, &builder, out);
}

TEMPLATE_BODY(join) {
    struct template_sequence items;
    if (template_type_items(run, &call->given[0], &items) != 0)
        return -1;
    for (size_t i = 0; i < items.length; i++)
        if (items.items[i].kind != TEMPLATE_STRING)
            return template_run_fail(run, "sequence item %zu: expected str instance, %s found", i,
                                     template_type_name(&items.items[i]));
    return call->self->is_markup ? join_markup(run, call->self, &items, out)
                                 : template_strings_join(run, call->self, &items, out);
}

TEMPLATE_BODY(format) {
    return template_strings_format_braces(run, call->self, call->arguments, out);
}

/* --- Tables --- */

const struct template_function template_map_methods[] = {
    {"get", get, "key default", 1},
    {"keys", make_view, "", 0, VIEW_KEYS},
    {"values", make_view, "", 0, VIEW_VALUES},
    {"items", make_view, "", 0, VIEW_ITEMS},
    {NULL, NULL, NULL, 0},
};

const struct template_function template_loop_methods[] = {
    {"cycle", cycle, NULL, 0},
    {"changed", changed, NULL, 0},
    {NULL, NULL, NULL, 0},
};

const struct template_function template_string_methods[] = {
    {"upper", change_case, "", 0, TEMPLATE_STRINGS_UPPER},
    {"lower", change_case, "", 0, TEMPLATE_STRINGS_LOWER},
    {"title", change_case, "", 0, TEMPLATE_STRINGS_TITLE},
    {"capitalize", change_case, "", 0, TEMPLATE_STRINGS_CAPITALIZE},
    {"strip", strip, "chars", 0, TEMPLATE_STRIP_BOTH},
    {"lstrip", strip, "chars", 0, TEMPLATE_STRIP_LEFT},
    {"rstrip", strip, "chars", 0, TEMPLATE_STRIP_RIGHT},
    {"startswith", match_end, "prefix", 1, false},
    {"endswith", match_end, "suffix", 1, true},
    {"find", find, "sub", 1, false},
    {"rfind", find, "sub", 1, true},
    {"count", count, "sub", 1},
    {"split", split, "sep maxsplit", 0, false},
    {"rsplit", split, "sep maxsplit", 0, true},
    {"splitlines", splitlines, "keepends", 0},
    {"replace", replace, "old new count", 2},
    {"join", join, "iterable", 1},
    {"format", format, NULL, 0},
    {NULL, NULL, NULL, 0},
};
