/* Any bytes as what a model writes. Byte 0 chooses the formats, bytes 1 to 8 seed the cuts, the
 * rest is the text. However it is cut the same comes out, at every cut and at the end, in whole
 * characters, nothing of it is lost, and the arguments of a call are whole JSON. */
#include "config/base/utf8.h"
#include "tests/unit/server/output/output_render.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define HEAD_BYTES 9

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void require(bool condition) {
    if (!condition)
        abort();
}

static void require_same(const struct byte_buffer *left, const struct byte_buffer *right) {
    require(left->length == right->length);
    require(left->length == 0 || memcmp(left->data, right->data, left->length) == 0);
}

static struct output_parser_config config_of(uint8_t byte) {
    static const char types[] = "f\0ss\0nn\0"; /* tool_members.h */
    static const char names[] = "f";
    return (struct output_parser_config){
        .tools = (enum tool_call_format)((byte & 15) % (TOOL_CALL_FORMAT_LAST + 1)),
        .reasoning = (enum reasoning_format)((byte >> 4 & 7) % (REASONING_FORMAT_GRANITE_33 + 1)),
        .begins_in_reasoning = (byte >> 7 & 1) != 0,
        .bare_names = names,
        .num_bare_names = 1,
        .parameter_types = {types, sizeof(types)}};
}

/* What has come out since `before` is whole characters. */
static void require_characters(const struct output_render *render, size_t before) {
    size_t length = render->text.length - before;
    require(length == 0 || utf8_valid_prefix(render->text.data + before, length) == length);
}

/* Pushes the characters of text one by one (a byte that is none by itself); sizes[k] is what has
 * come out before byte k. */
static void push_characters(struct output_render *render, const char *text, size_t length,
                            size_t *sizes) {
    bool is_valid = utf8_valid_prefix(text, length) == length;
    for (size_t at = 0; at < length;) {
        size_t count = utf8_char_bytes(text + at, length - at);
        count = count == 0 ? 1 : count;
        for (size_t i = 0; i < count; i++)
            sizes[at + i] = render->text.length;
        output_render_push(render, text + at, count, OUTPUT_GOES_ON);
        if (is_valid)
            require_characters(render, sizes[at]);
        at += count;
    }
    sizes[length] = render->text.length;
    output_render_push(render, NULL, 0, OUTPUT_ENDS);
}

/* Pushes pieces; at each cut between characters, what is out is the beginning of all that comes and
 * as long as it was byte by byte. */
static void push_pieces(struct output_render *render, const char *text, size_t length,
                        const uint8_t *seeds, const struct output_render *whole,
                        const size_t *sizes) {
    size_t at = 0;
    for (int i = 0; at < length; i = (i + 1) % (HEAD_BYTES - 1)) {
        size_t count = seeds[i] + (size_t)(seeds[i] == 0);
        count = count < length - at ? count : length - at;
        output_render_push(render, text + at, count, OUTPUT_GOES_ON);
        at += count;
        bool in_character = at < length && ((uint8_t)text[at] & 0xC0) == 0x80;
        require(in_character || render->text.length == sizes[at]);
        require(render->text.length <= whole->text.length);
        require(render->text.length == 0 ||
                memcmp(render->text.data, whole->text.data, render->text.length) == 0);
    }
    output_render_push(render, NULL, 0, OUTPUT_ENDS);
}

/* Bytes of text that `out` does not have, which must be in text's order; SIZE_MAX when they are
 * not. */
static size_t num_missing(const char *text, size_t length, const struct byte_buffer *out) {
    size_t taken = 0;
    for (size_t i = 0; i < length; i++)
        if (taken < out->length && text[i] == out->data[taken])
            taken++;
    return taken == out->length ? length - out->length : SIZE_MAX;
}

static size_t count_space(const char *text, size_t length) {
    size_t count = 0;
    for (size_t i = 0; i < length; i++)
        count += text[i] == ' ' || text[i] == '\t' || text[i] == '\n' || text[i] == '\r';
    return count;
}

/* Without calls all comes out but the markers of thinking and of the answer behind it, and white
 * space around them. Harmony takes
 * out the markers of any number of messages, and Cohere's frame any number of its own. */
static void check_loss(const struct output_parser_config *config, const char *text, size_t length,
                       const struct output_render *render) {
    struct byte_buffer both = {0};
    const struct reasoning_markers *around = reasoning_format_markers(config->reasoning);
    if (config->tools == TOOL_CALL_FORMAT_HARMONY || config->tools == TOOL_CALL_FORMAT_COHERE ||
        config->reasoning == REASONING_FORMAT_HARMONY ||
        config->reasoning == REASONING_FORMAT_COHERE)
        return;
    byte_buffer_append(&both, render->reasoning.data, render->reasoning.length);
    byte_buffer_append(&both, render->content.data, render->content.length);
    size_t missing = num_missing(text, length, &both);
    require(missing != SIZE_MAX);
    if (output_parser_num_tool_calls(render->parser) == 0) {
        size_t markers = around == NULL ? 0 : strlen(around->begin) + strlen(around->end);
        if (config->reasoning == REASONING_FORMAT_GRANITE_33)
            markers += strlen("<response></response>");
        size_t may_miss = count_space(text, length) + markers;
        require(missing <= (config->reasoning == REASONING_FORMAT_NONE ? 0 : may_miss));
    }
    byte_buffer_finish(&both);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    if (bytes < HEAD_BYTES)
        return 0;
    const char *text = (const char *)data + HEAD_BYTES;
    size_t length = bytes - HEAD_BYTES;
    struct output_parser_config config = config_of(data[0]);
    size_t *sizes = malloc((length + 1) * sizeof(*sizes));
    struct output_render singles, whole, pieces;
    require(sizes != NULL);
    output_render_begin(&singles, &config);
    output_render_begin(&whole, &config);
    output_render_begin(&pieces, &config);
    push_characters(&singles, text, length, sizes);
    output_render_push(&whole, text, length, OUTPUT_ENDS);
    push_pieces(&pieces, text, length, data + 1, &whole, sizes);
    require_same(&singles.text, &whole.text);
    require_same(&pieces.text, &whole.text);
    check_loss(&config, text, length, &whole);
    /* A call that is longer than what is held may break behind its beginning. */
    require(output_parser_is_broken(whole.parser) || output_render_calls_are_whole(&whole));
    require(output_parser_num_tool_calls(whole.parser) <= OUTPUT_MAX_TOOL_CALLS);
    output_render_finish(&singles);
    output_render_finish(&whole);
    output_render_finish(&pieces);
    free(sizes);
    return 0;
}
