#include "server/output/custom_input.h"

#include <stdbool.h>
#include <string.h>

static const char head[] = "{\"input\":\"";

static bool is_space(char byte) {
    return byte == ' ' || byte == '\n' || byte == '\t' || byte == '\r';
}

/* Between two tokens, and before the first. */
static bool may_be_space(int num_matched) {
    return num_matched <= 1 || num_matched >= (int)strlen("{\"input\"");
}

static void push_head(struct custom_input *input, char byte, struct byte_buffer *out) {
    if (input->num_matched == 1 && byte == '}') { /* no arguments */
        input->state = CUSTOM_INPUT_TAIL;
        return;
    }
    bool is_skipped = is_space(byte) && may_be_space(input->num_matched);
    bool has_room = input->head_length < CUSTOM_INPUT_MAX_HEAD;
    if (has_room && (is_skipped || byte == head[input->num_matched])) {
        input->head[input->head_length++] = byte;
        input->num_matched += !is_skipped;
        if (head[input->num_matched] == '\0')
            input->state = CUSTOM_INPUT_STRING;
        return;
    }
    input->state = CUSTOM_INPUT_OTHER;
    byte_buffer_append(out, input->head, (size_t)input->head_length);
    byte_buffer_append(out, &byte, 1);
}

static void push_string(struct custom_input *input, char byte, struct byte_buffer *out) {
    char text[JSON_UNESCAPE_MAX_BYTES];
    bool is_end = byte == '"' && !input->unescape.in_escape;
    size_t length = is_end ? json_unescape_end(&input->unescape, text)
                           : json_unescape_push(&input->unescape, byte, text);
    byte_buffer_append(out, text, length);
    if (is_end)
        input->state = CUSTOM_INPUT_TAIL;
}

void custom_input_push(struct custom_input *input, const char *text, size_t length,
                       struct byte_buffer *out) {
    for (size_t i = 0; i < length; i++) {
        if (input->state == CUSTOM_INPUT_HEAD) {
            push_head(input, text[i], out);
        } else if (input->state == CUSTOM_INPUT_STRING) {
            push_string(input, text[i], out);
        } else if (input->state == CUSTOM_INPUT_OTHER) {
            byte_buffer_append(out, text + i, length - i);
            return;
        }
    }
}
