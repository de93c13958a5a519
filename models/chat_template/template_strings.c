#include "models/chat_template/template_strings.h"

#include "models/chat_template/template_characters.h"
#include "models/chat_template/template_repr.h"
#include "models/chat_template/template_type.h"

static bool is_stripped(struct text character, const struct text *chars, int32_t c) {
    if (chars == NULL)
        return template_characters_is_space(c);
    return memmem(chars->data, chars->length, character.data, character.length) != NULL;
}

int template_strings_strip(struct template_run *run, const struct template_value *string,
                           const struct text *chars, enum template_strip sides,
                           struct template_value *out) {
    struct text text = template_string_text(string);
    size_t begin = 0, end = text.length;
    while ((sides & TEMPLATE_STRIP_LEFT) != 0 && begin < end) {
        size_t next = begin;
        int32_t c = template_characters_next(text, &next);
        if (!is_stripped((struct text){text.data + begin, next - begin}, chars, c))
            break;
        begin = next;
    }
    while ((sides & TEMPLATE_STRIP_RIGHT) != 0 && end > begin) {
        size_t before = template_characters_before(text, end), next = before;
        int32_t c = template_characters_next(text, &next);
        if (!is_stripped((struct text){text.data + before, end - before}, chars, c))
            break;
        end = before;
    }
    *out = template_data_part(*string, begin, end);
    size_t num_read = (text.length - (end - begin)) * (chars != NULL ? chars->length : 1);
    return template_run_charge_text(run, num_read);
}

static const char *find_last(struct text text, struct text part) {
    for (size_t at = text.length; part.length <= text.length && at-- > 0;)
        if (text.length - at >= part.length && memcmp(text.data + at, part.data, part.length) == 0)
            return text.data + at;
    return NULL;
}

int64_t template_strings_find(struct text text, struct text part, bool from_end) {
    if (part.length == 0)
        return from_end ? (int64_t)text.length : 0;
    const char *found =
        from_end ? find_last(text, part) : memmem(text.data, text.length, part.data, part.length);
    return found == NULL ? -1 : found - text.data;
}

int template_strings_replace(struct template_run *run, const struct template_value *string,
                             struct text old, const struct template_value *by, int64_t most,
                             struct template_value *out) {
    struct template_builder builder = {.arena = run->arena, .is_markup = string->is_markup};
    struct text text = template_string_text(string);
    struct template_value escaped;
    size_t begin = 0, at = 0;
    if (string->is_markup) {
        if (template_strings_escape(run, by, &escaped) != 0)
            return -1;
        by = &escaped;
    }
    for (int64_t count = 0; most < 0 || count < most; count++) {
        if (template_run_charge(run, 1) != 0 ||
            template_run_charge_text(run, by->string.length) != 0)
            return -1;
        if (old.length == 0) { /* before each character, and at the end */
            size_t next = at;
            if (count > 0 && at == text.length)
                break;
            if (count > 0)
                template_characters_next(text, &next);
            at = next;
        } else {
            const char *found = memmem(text.data + at, text.length - at, old.data, old.length);
            if (found == NULL)
                break;
            at = (size_t)(found - text.data);
        }
        template_builder_add_part(&builder, string, begin, at);
        template_builder_add_string(&builder, by);
        at += old.length;
        begin = at;
    }
    template_builder_add_part(&builder, string, begin, text.length);
    return template_run_finish(run, &builder, out);
}

int template_strings_join(struct template_run *run, const struct template_value *separator,
                          const struct template_sequence *items, struct template_value *out) {
    struct template_builder builder = {.arena = run->arena};
    for (size_t i = 0; i < items->length; i++) {
        if (template_run_charge(run, 1) != 0 ||
            template_run_charge_text(run, separator->string.length) != 0)
            return -1;
        if (i > 0)
            template_builder_add_string(&builder, separator);
        if (template_repr_str(run, &items->items[i], &builder) != 0)
            return -1;
    }
    return template_run_finish(run, &builder, out);
}

static bool ends_line(int32_t c) {
    return (c >= 0x0a && c <= 0x0d) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 ||
           c == 0x2029;
}

int template_strings_lines(struct template_run *run, const struct template_value *string,
                           bool keep_ends, struct template_value *out) {
    struct text text = template_string_text(string);
    struct template_value made, from = *string;
    if (!template_data_sequence(run->arena, TEMPLATE_LIST, &made))
        return template_run_fail_memory(run);
    for (size_t begin = 0, at = 0; at < text.length; begin = at) {
        size_t end = text.length;
        while (at < text.length && end == text.length) {
            size_t before = at;
            int32_t c = template_characters_next(text, &at);
            if (!ends_line(c))
                continue;
            end = before;
            at += c == '\r' && at < text.length && text.data[at] == '\n';
            break;
        }
        if (!template_data_append(run->arena, made.sequence,
                                  template_data_part(from, begin, keep_ends ? at : end)))
            return template_run_fail_memory(run);
    }
    *out = made;
    return template_run_charge(run, made.sequence->length);
}

int template_strings_escape(struct template_run *run, const struct template_value *string,
                            struct template_value *out) {
    static const char special[] = "&<>'\"";
    static const char *const escapes[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    struct template_builder builder = {.arena = run->arena, .is_markup = true};
    struct template_value from = *string;
    size_t begin = 0;
    for (size_t at = 0; !from.is_markup && at < from.string.length; at++) {
        char c = from.string.data[at];
        const char *found = c != '\0' ? strchr(special, c) : NULL;
        if (found == NULL)
            continue;
        template_builder_add_part(&builder, &from, begin, at);
        template_builder_add_server(&builder, escapes[found - special]);
        begin = at + 1;
    }
    template_builder_add_part(&builder, &from, begin, from.string.length);
    return template_run_finish(run, &builder, out) != 0
               ? -1
               : template_run_charge_text(run, from.string.length);
}

/* --- Case --------------------------------------------------------------------------------------
 */

/* Characters in their other case, until they are many or of another origin. */
struct run_of_characters {
    char bytes[256];
    size_t length;
    enum template_origin origin;
};

static void flush(struct run_of_characters *characters, struct template_builder *builder) {
    template_builder_add(builder, (struct text){characters->bytes, characters->length},
                         characters->origin);
    characters->length = 0;
}

static bool has_case(int32_t c) {
    return c >= 0 && (template_characters_is_lower(c) || template_characters_is_upper(c) ||
                      template_characters_is_title(c));
}

/* Returns the case of a character, given the one before it; -1 before the first. */
static enum template_case choose(enum template_strings_case to, int32_t before) {
    switch (to) {
    case TEMPLATE_STRINGS_UPPER:
        return TEMPLATE_CASE_UPPER;
    case TEMPLATE_STRINGS_LOWER:
        return TEMPLATE_CASE_LOWER;
    case TEMPLATE_STRINGS_CAPITALIZE:
        return before < 0 ? TEMPLATE_CASE_TITLE : TEMPLATE_CASE_LOWER;
    case TEMPLATE_STRINGS_TITLE:
        return has_case(before) ? TEMPLATE_CASE_LOWER : TEMPLATE_CASE_TITLE;
    default: /* TEMPLATE_STRINGS_TITLE_WORDS */
        return before < 0 || template_characters_is_space(before) || before == '-' ||
                       before == '(' || before == '{' || before == '[' || before == '<'
                   ? TEMPLATE_CASE_UPPER
                   : TEMPLATE_CASE_LOWER;
    }
}

int template_strings_change_case(struct template_run *run, const struct template_value *string,
                                 enum template_strings_case to, struct template_value *out) {
    struct template_builder builder = {
        .arena = run->arena, .is_markup = string->is_markup && to != TEMPLATE_STRINGS_TITLE_WORDS};
    struct run_of_characters characters = {.origin = string->origin};
    struct text text = template_string_text(string);
    const uint8_t *marks = string->string.marks;
    int32_t before = -1;
    if (template_run_charge(run, text.length / 8) != 0)
        return -1;
    for (size_t at = 0, next = 0; at < text.length; at = next) {
        enum template_origin origin = marks != NULL ? marks[at] : string->origin;
        if (origin != characters.origin ||
            characters.length + TEMPLATE_MAX_CASE_BYTES > sizeof(characters.bytes))
            flush(&characters, &builder);
        int32_t c = template_characters_next(text, &next);
        characters.length +=
            template_characters_map(c, choose(to, before), characters.bytes + characters.length);
        characters.origin = origin;
        before = c;
    }
    flush(&characters, &builder);
    return template_run_finish(run, &builder, out);
}
