#include "models/chat_template/template_attribute.h"
#include "models/chat_template/template_call.h"
#include "models/chat_template/template_case.h"
#include "models/chat_template/template_characters.h"
#include "models/chat_template/template_format.h"
#include "models/chat_template/template_library.h"
#include "models/chat_template/template_strings.h"
#include "models/chat_template/template_type.h"

#define METHOD(name)                                                                               \
    static int name(struct template_run *run, const struct template_call *call,                    \
                    struct template_value *out)

static struct text self_text(const struct template_call *call) {
    return template_string_text(call->self);
}

static int give_bool(bool value, struct template_value *out) {
    *out = template_data_bool(value);
    return 0;
}

/* --- Case and kinds of characters --------------------------------------------------------------
 */

METHOD(upper) {
    return template_case_upper(run, call->self, out);
}

METHOD(lower) {
    return template_case_lower(run, call->self, out);
}

METHOD(title) {
    return template_case_title(run, call->self, out);
}

METHOD(capitalize) {
    return template_case_capitalize(run, call->self, out);
}

/* Whether there are characters, and all are such. */
static int all_are(struct template_run *run, const struct template_call *call,
                   bool (*is_such)(int32_t), struct template_value *out) {
    struct text text = self_text(call);
    bool all = text.length > 0;
    if (template_run_charge(run, text.length / 16) != 0)
        return -1;
    for (size_t at = 0; all && at < text.length;)
        all = is_such(template_characters_next(text, &at));
    return give_bool(all, out);
}

METHOD(test_alpha) {
    return all_are(run, call, template_characters_is_alpha, out);
}

METHOD(test_digit) {
    return all_are(run, call, template_characters_is_digit, out);
}

METHOD(test_space) {
    return all_are(run, call, template_characters_is_space, out);
}

static int answer_test(struct template_run *run, const struct template_call *call, const char *test,
                       struct template_value *out) {
    struct template_arguments none = {0};
    bool holds;
    struct text name = {test, strlen(test)};
    return template_call_test(run, name, call->self, &none, &holds) != 0 ? -1
                                                                         : give_bool(holds, out);
}

METHOD(test_lower) {
    return answer_test(run, call, "lower", out);
}

METHOD(test_upper) {
    return answer_test(run, call, "upper", out);
}

/* --- Ends --------------------------------------------------------------------------------------
 */

static int strip_sides(struct template_run *run, const struct template_call *call,
                       enum template_strip sides, struct template_value *out) {
    struct template_value chars;
    if (call->given[0].kind == TEMPLATE_MISSING || call->given[0].kind == TEMPLATE_NONE)
        return template_strings_strip(run, call->self, NULL, sides, out);
    if (template_call_get_string(run, call, 0, "", &chars) != 0)
        return -1;
    struct text text = template_string_text(&chars);
    return template_strings_strip(run, call->self, &text, sides, out);
}

METHOD(strip) {
    return strip_sides(run, call, TEMPLATE_STRIP_BOTH, out);
}

METHOD(lstrip) {
    return strip_sides(run, call, TEMPLATE_STRIP_LEFT, out);
}

METHOD(rstrip) {
    return strip_sides(run, call, TEMPLATE_STRIP_RIGHT, out);
}

static bool starts(struct text text, struct text start) {
    return text.length >= start.length &&
           (start.length == 0 || memcmp(text.data, start.data, start.length) == 0);
}

static bool ends(struct text text, struct text end) {
    return text.length >= end.length &&
           (end.length == 0 ||
            memcmp(text.data + (text.length - end.length), end.data, end.length) == 0);
}

/* The part between the bounds that parameters `first` and `first` + 1 give. */
static int bounded_part(struct template_run *run, const struct template_call *call, int first,
                        struct template_value *out) {
    struct template_value bounds[3];
    for (int i = 0; i < 3; i++) {
        bounds[i] = i < 2 ? call->given[first + i] : template_data_none();
        if (bounds[i].kind == TEMPLATE_MISSING)
            bounds[i] = template_data_none();
    }
    return template_attribute_slice(run, call->self, bounds, out);
}

static int match_end(struct template_run *run, const struct template_call *call,
                     bool (*matches)(struct text, struct text), struct template_value *out) {
    const struct template_value *given = &call->given[0];
    struct template_value part, single;
    struct template_sequence choices = {.items = &single, .length = 1};
    bool found = false;
    if (bounded_part(run, call, 1, &part) != 0)
        return -1;
    if (given->kind == TEMPLATE_TUPLE)
        choices = *given->sequence;
    else if (template_call_get_string(run, call, 0, "", &single) != 0)
        return -1;
    for (size_t i = 0; !found && i < choices.length; i++) {
        if (choices.items[i].kind != TEMPLATE_STRING)
            return template_run_fail(run, "a tuple of choices must hold strings, not %s",
                                     template_type_name(&choices.items[i]));
        found = matches(template_string_text(&part), template_string_text(&choices.items[i]));
    }
    return give_bool(found, out);
}

METHOD(startswith) {
    return match_end(run, call, starts, out);
}

METHOD(endswith) {
    return match_end(run, call, ends, out);
}

METHOD(removeprefix) {
    struct template_value prefix;
    struct text text = self_text(call);
    if (template_call_get_string(run, call, 0, "", &prefix) != 0)
        return -1;
    size_t cut = starts(text, template_string_text(&prefix)) ? prefix.string.length : 0;
    *out = template_data_part(*call->self, cut, text.length);
    return 0;
}

METHOD(removesuffix) {
    struct template_value suffix;
    struct text text = self_text(call);
    if (template_call_get_string(run, call, 0, "", &suffix) != 0)
        return -1;
    size_t cut = ends(text, template_string_text(&suffix)) ? suffix.string.length : 0;
    *out = template_data_part(*call->self, 0, text.length - cut);
    return 0;
}

/* --- Search ------------------------------------------------------------------------------------
 */

static int find_index(struct template_run *run, const struct template_call *call, bool from_end,
                      bool must, struct template_value *out) {
    struct template_value wanted, part;
    if (template_call_get_string(run, call, 0, "", &wanted) != 0 ||
        bounded_part(run, call, 1, &part) != 0 ||
        template_run_charge_text(run, from_end ? part.string.length * 8 : 0) != 0)
        return -1;
    int64_t at =
        template_strings_find(template_string_text(&part), template_string_text(&wanted), from_end);
    if (at < 0 && must)
        return template_run_fail(run, "substring not found");
    struct text before = {call->self->string.data,
                          at < 0 ? 0 : (size_t)(part.string.data - call->self->string.data + at)};
    *out = template_data_int(at < 0 ? -1 : (int64_t)template_characters_count(before));
    return 0;
}

METHOD(find) {
    return find_index(run, call, false, false, out);
}

METHOD(rfind) {
    return find_index(run, call, true, false, out);
}

METHOD(index_of) {
    return find_index(run, call, false, true, out);
}

METHOD(last_index_of) {
    return find_index(run, call, true, true, out);
}

METHOD(count) {
    struct template_value wanted, part;
    int64_t num = 0;
    if (template_call_get_string(run, call, 0, "", &wanted) != 0 ||
        bounded_part(run, call, 1, &part) != 0)
        return -1;
    struct text rest = template_string_text(&part), needle = template_string_text(&wanted);
    if (needle.length == 0)
        num = template_type_length(&part) + 1;
    for (int64_t at; needle.length > 0 && (at = template_strings_find(rest, needle, false)) >= 0;
         num++) {
        size_t taken = (size_t)at + needle.length;
        rest = (struct text){rest.data + taken, rest.length - taken};
    }
    *out = template_data_int(num);
    return 0;
}

/* --- Parts -------------------------------------------------------------------------------------
 */

/* The parts of a split, in the order they are found. */
struct split {
    struct template_run *run;
    struct template_value string;
    struct text text;
    int64_t most; /* splits that may still be made; -1: any number */
    struct template_sequence *parts;
};

static int add_part(struct split *s, size_t begin, size_t end) {
    if (!template_data_append(s->run->arena, s->parts, template_data_part(s->string, begin, end)))
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

static int split_either(struct template_run *run, const struct template_call *call, bool from_end,
                        struct template_value *out) {
    struct split s = {run, *call->self, template_string_text(call->self), -1, NULL};
    struct template_value made, separator = template_data_none();
    bool by_space = call->given[0].kind == TEMPLATE_MISSING || call->given[0].kind == TEMPLATE_NONE;
    if ((!by_space && template_call_get_string(run, call, 0, "", &separator) != 0) ||
        template_call_get_int(run, call, 1, -1, &s.most) != 0)
        return -1;
    if (!by_space && separator.string.length == 0)
        return template_run_fail(run, "empty separator");
    if (!template_data_sequence(run->arena, TEMPLATE_LIST, &made))
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

static int split(struct template_run *run, const struct template_call *call,
                 struct template_value *out) {
    return split_either(run, call, false, out);
}

static int rsplit(struct template_run *run, const struct template_call *call,
                  struct template_value *out) {
    return split_either(run, call, true, out);
}

static int splitlines(struct template_run *run, const struct template_call *call,
                      struct template_value *out) {
    return template_strings_lines(run, call->self, template_call_get_flag(call, 0, false), out);
}

METHOD(replace) {
    struct template_value old, by;
    int64_t most;
    if (template_call_get_string(run, call, 0, "", &old) != 0 ||
        template_call_get_string(run, call, 1, "", &by) != 0 ||
        template_call_get_int(run, call, 2, -1, &most) != 0)
        return -1;
    return template_strings_replace(run, call->self, template_string_text(&old), &by, most, out);
}

/* --- Putting together --------------------------------------------------------------------------
 */

/* What is no Markup is escaped. */
static int join_markup(struct template_run *run, const struct template_value *separator,
                       const struct template_sequence *items, struct template_value *out) {
    struct template_builder builder = {.arena = run->arena};
    for (size_t i = 0; i < items->length; i++) {
        struct template_value item;
        if (template_strings_escape(run, &items->items[i], &item) != 0)
            return -1;
        if (i > 0)
            template_builder_add_string(&builder, separator);
        template_builder_add_string(&builder, &item);
    }
    if (template_run_finish(run, &builder, out) != 0)
        return -1;
    out->is_markup = true;
    return 0;
}

METHOD(join) {
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

METHOD(format) {
    return template_format_braces(run, call->self, call->arguments, out);
}

const struct template_function template_string_methods[] = {
    {"upper", upper, "", 0},
    {"lower", lower, "", 0},
    {"title", title, "", 0},
    {"capitalize", capitalize, "", 0},
    {"isalpha", test_alpha, "", 0},
    {"isdigit", test_digit, "", 0},
    {"isspace", test_space, "", 0},
    {"islower", test_lower, "", 0},
    {"isupper", test_upper, "", 0},
    {"strip", strip, "chars", 0},
    {"lstrip", lstrip, "chars", 0},
    {"rstrip", rstrip, "chars", 0},
    {"startswith", startswith, "prefix start end", 1},
    {"endswith", endswith, "suffix start end", 1},
    {"removeprefix", removeprefix, "prefix", 1},
    {"removesuffix", removesuffix, "suffix", 1},
    {"find", find, "sub start end", 1},
    {"rfind", rfind, "sub start end", 1},
    {"index", index_of, "sub start end", 1},
    {"rindex", last_index_of, "sub start end", 1},
    {"count", count, "sub start end", 1},
    {"split", split, "sep maxsplit", 0},
    {"rsplit", rsplit, "sep maxsplit", 0},
    {"splitlines", splitlines, "keepends", 0},
    {"replace", replace, "old new count", 2},
    {"join", join, "iterable", 1},
    {"format", format, NULL, 0},
    {NULL, NULL, NULL, 0},
};
