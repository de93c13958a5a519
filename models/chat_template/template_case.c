

/* The case of a character, given the one before it; -1 before the first. */
#include "models/chat_template/template_case.h"

#include "models/chat_template/template_characters.h"
typedef enum template_case (*choose_case)(int32_t before, int32_t character);

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

static int map(struct template_run *run, const struct template_value *string, choose_case choose,
               struct template_value *out) {
    struct template_builder builder = {.arena = run->arena};
    struct run_of_characters characters = {.origin = string->origin};
    struct text text = {string->string.data, string->string.length};
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
            template_characters_map(c, choose(before, c), characters.bytes + characters.length);
        characters.origin = origin;
        before = c;
    }
    flush(&characters, &builder);
    bool is_markup = string->is_markup;
    if (template_run_finish(run, &builder, out) != 0)
        return -1;
    out->is_markup = is_markup;
    return 0;
}

static enum template_case choose_upper(int32_t before, int32_t character) {
    return TEMPLATE_CASE_UPPER;
}

static enum template_case choose_lower(int32_t before, int32_t character) {
    return TEMPLATE_CASE_LOWER;
}

static enum template_case choose_first(int32_t before, int32_t character) {
    return before < 0 ? TEMPLATE_CASE_TITLE : TEMPLATE_CASE_LOWER;
}

static bool has_case(int32_t c) {
    return c >= 0 && (template_characters_is_lower(c) || template_characters_is_upper(c) ||
                      template_characters_is_title(c));
}

static enum template_case choose_title(int32_t before, int32_t character) {
    return has_case(before) ? TEMPLATE_CASE_LOWER : TEMPLATE_CASE_TITLE;
}

static enum template_case choose_word(int32_t before, int32_t character) {
    bool begins = before < 0 || template_characters_is_space(before) || before == '-' ||
                  before == '(' || before == '{' || before == '[' || before == '<';
    return begins ? TEMPLATE_CASE_UPPER : TEMPLATE_CASE_LOWER;
}

int template_case_upper(struct template_run *run, const struct template_value *string,
                        struct template_value *out) {
    return map(run, string, choose_upper, out);
}

int template_case_lower(struct template_run *run, const struct template_value *string,
                        struct template_value *out) {
    return map(run, string, choose_lower, out);
}

int template_case_capitalize(struct template_run *run, const struct template_value *string,
                             struct template_value *out) {
    return map(run, string, choose_first, out);
}

int template_case_title(struct template_run *run, const struct template_value *string,
                        struct template_value *out) {
    return map(run, string, choose_title, out);
}

int template_case_title_words(struct template_run *run, const struct template_value *string,
                              struct template_value *out) {
    if (map(run, string, choose_word, out) != 0)
        return -1;
    out->is_markup = false; /* Jinja puts it together anew */
    return 0;
}
