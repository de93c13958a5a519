/* Methods that take strings apart. */
#include "models/chat_template/template_characters.h"
#include "models/chat_template/template_methods.h"
#include "models/chat_template/template_strings.h"

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

static int partition_either(struct template_run *run, const struct template_call *call,
                            bool from_end, struct template_value *out) {
    struct template_value separator, self = *call->self, parts[3];
    if (template_call_get_string(run, call, 0, "", &separator) != 0)
        return -1;
    if (separator.string.length == 0)
        return template_run_fail(run, "empty separator");
    size_t length = self.string.length;
    int64_t at = template_strings_find(template_string_text(call->self),
                                       template_string_text(&separator), from_end);
    size_t begin = at >= 0 ? (size_t)at : from_end ? 0 : length;
    size_t end = at >= 0 ? begin + separator.string.length : begin;
    parts[0] = template_data_part(self, 0, begin);
    parts[1] = template_data_part(self, begin, end);
    parts[2] = template_data_part(self, end, length);
    return template_data_items(run->arena, TEMPLATE_TUPLE, parts, 3, out)
               ? 0
               : template_run_fail_memory(run);
}

static int partition(struct template_run *run, const struct template_call *call,
                     struct template_value *out) {
    return partition_either(run, call, false, out);
}

static int rpartition(struct template_run *run, const struct template_call *call,
                      struct template_value *out) {
    return partition_either(run, call, true, out);
}

const struct template_function *template_string_parts_find(struct text name) {
    static const struct template_function methods[] = {
        {"split", split, "sep maxsplit", 0},       {"rsplit", rsplit, "sep maxsplit", 0},
        {"splitlines", splitlines, "keepends", 0}, {"partition", partition, "sep", 1},
        {"rpartition", rpartition, "sep", 1},      {NULL, NULL, NULL, 0},
    };
    return template_call_find(methods, name);
}
