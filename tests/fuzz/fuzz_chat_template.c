/* Any bytes as a chat template, rendered with values made of further bytes. The input is a byte of
 * choices, a template that ends with NUL, and texts that end with NUL. Whatever compiles is
 * rendered in little memory; what comes out is valid UTF-8 with sound spans, and where all of a
 * client's text is of private-use characters, none of them is outside. */
#include "config/base/utf8.h"
#include "models/chat_template/chat_template.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TEXTS 16
#define ARENA_BYTES ((size_t)1 << 20)
#define TEXT(literal) ((struct text){literal, sizeof(literal) - 1})

enum choices {
    CHOICE_PRIVATE = 1,
    CHOICE_PROMPT = 2,
    CHOICE_TOOLS = 4,
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void require(bool condition) {
    if (!condition)
        abort();
}

struct input {
    unsigned choices;
    struct text source;
    size_t num_texts;
    struct text texts[MAX_TEXTS];
};

/* Texts of the input that are not UTF-8 end before the first byte that is not. */
static void read_input(const char *data, size_t bytes, struct input *out) {
    *out = (struct input){.choices = (unsigned char)data[0], .source = {data + 1, 0}};
    const char *at = data + 1, *end = data + bytes;
    const char *stop = memchr(at, '\0', (size_t)(end - at));
    out->source.length = (size_t)((stop != NULL ? stop : end) - at);
    while (stop != NULL && out->num_texts < MAX_TEXTS) {
        at = stop + 1;
        stop = memchr(at, '\0', (size_t)(end - at));
        size_t length = (size_t)((stop != NULL ? stop : end) - at);
        out->texts[out->num_texts++] = (struct text){at, utf8_valid_prefix(at, length)};
    }
}

static struct template_value *client_text(struct template_arena *arena, const struct input *input,
                                          size_t index) {
    struct text text = index < input->num_texts ? input->texts[index] : TEXT("");
    char private[3 * 64];
    if ((input->choices & CHOICE_PRIVATE) == 0)
        return template_string(arena, text.data, text.length, TEMPLATE_ORIGIN_CLIENT);
    size_t length = text.length < 64 ? text.length : 64;
    for (size_t i = 0; i < length; i++)
        memcpy(private + 3 * i,
               (char[]){'\xee', '\x80', (char)(0x80 | ((unsigned char)text.data[i] & 0x3f))}, 3);
    return template_string(arena, private, 3 * length, TEMPLATE_ORIGIN_CLIENT);
}

static struct template_value *set(struct template_arena *arena, struct template_value *map,
                                  struct text key, struct template_value *item) {
    return template_map_set(arena, map, key, TEMPLATE_ORIGIN_SERVER, item);
}

static struct template_value *make_message(struct template_arena *arena, const struct input *input,
                                           size_t index) {
    static const char *const roles[] = {"system", "user", "assistant", "tool"};
    const char *role = roles[index % 4];
    struct template_value *message = template_map(arena);
    message = set(arena, message, TEXT("role"),
                  template_string(arena, role, strlen(role), TEMPLATE_ORIGIN_SERVER));
    return set(arena, message, TEXT("content"), client_text(arena, input, index));
}

static struct template_value *make_tools(struct template_arena *arena, const struct input *input) {
    struct template_value *function = template_map(arena), *tools = template_list(arena);
    function = set(arena, function, TEXT("name"), client_text(arena, input, 0));
    function = set(arena, function, TEXT("strict"), template_bool(arena, true));
    function = set(arena, function, TEXT("count"), template_int(arena, -7));
    function = set(arena, function, TEXT("share"), template_float(arena, 0.125));
    function = set(arena, function, TEXT("none"), template_none(arena));
    return template_list_append(arena, tools, function);
}

static struct template_value *make_variables(struct template_arena *arena,
                                             const struct input *input) {
    struct template_value *variables = template_map(arena), *messages = template_list(arena);
    for (size_t i = 0; i < input->num_texts; i++)
        messages = template_list_append(arena, messages, make_message(arena, input, i));
    variables = set(arena, variables, TEXT("messages"), messages);
    variables = set(arena, variables, TEXT("add_generation_prompt"),
                    template_bool(arena, (input->choices & CHOICE_PROMPT) != 0));
    variables = set(arena, variables, TEXT("bos_token"),
                    template_string(arena, "<s>", 3, TEMPLATE_ORIGIN_SERVER));
    return set(arena, variables, TEXT("tools"),
               input->choices & CHOICE_TOOLS ? make_tools(arena, input) : template_none(arena));
}

static bool is_in_span(const struct chat_text *text, size_t at) {
    for (size_t i = 0; i < text->num_client_spans; i++) {
        if (text->client_spans[i].begin <= at && at + 3 <= text->client_spans[i].end)
            return true;
    }
    return false;
}

/* Private-use characters come from the client only: the source has none, written or escaped. */
static void check_origin(const struct input *input, const struct chat_text *text) {
    if (memchr(input->source.data, '\xee', input->source.length) != NULL ||
        memchr(input->source.data, '\\', input->source.length) != NULL)
        return;
    for (size_t i = 0; i + 2 < text->length; i++) {
        if (text->data[i] == '\xee')
            require(is_in_span(text, i));
    }
}

static void check_text(const struct input *input, const struct chat_text *text) {
    size_t end = 0;
    bool valid =
        utf8_valid_prefix(input->source.data, input->source.length) == input->source.length;
    require(!valid || utf8_valid_prefix(text->data, text->length) == text->length);
    for (size_t i = 0; i < text->num_client_spans; i++) {
        struct text_span span = text->client_spans[i];
        require(span.begin < span.end && span.begin >= end && span.end <= text->length);
        end = span.end;
    }
    if (input->choices & CHOICE_PRIVATE)
        check_origin(input, text);
}

static void render(const struct chat_template *chat, const struct input *input) {
    struct template_arena *arena = template_arena_create(ARENA_BYTES);
    struct template_value *variables = make_variables(arena, input);
    struct chat_text text = {0};
    struct error err = {0};
    if (variables == NULL) {
        require(template_arena_is_full(arena));
    } else if (chat_template_render(chat, arena, variables, 1751619903, &text, &err) == 0) {
        check_text(input, &text);
    } else {
        require(err.code == ERROR_SYNTAX || err.code == ERROR_MEMORY);
        require(err.message[0] != '\0' && strchr(err.message, '\n') == NULL);
    }
    template_arena_destroy(arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    struct chat_template *chat = NULL;
    struct error err = {0};
    struct input input;
    if (bytes == 0)
        return 0;
    read_input((const char *)data, bytes, &input);
    if (chat_template_create(input.source.data, input.source.length, &chat, &err) == 0)
        render(chat, &input);
    else
        require(err.code == ERROR_SYNTAX && err.message[0] != '\0' &&
                strchr(err.message, '\n') == NULL);
    chat_template_destroy(chat);
    return 0;
}
