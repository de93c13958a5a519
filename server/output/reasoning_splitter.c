#include "server/output/reasoning_splitter.h"

void reasoning_splitter_init(struct reasoning_splitter *splitter,
                             const struct output_parser_config *config, struct output_parts *parts,
                             struct tool_parser *content) {
    *splitter = (struct reasoning_splitter){.state = REASONING_OVER,
                                            .is_open = config->begins_in_reasoning,
                                            .skips_space = true,
                                            .parts = parts,
                                            .content = content};
    if (config->reasoning == REASONING_FORMAT_NONE)
        return;
    splitter->state = REASONING_START;
    text_marker_init(&splitter->marker, REASONING_BEGIN);
}

void reasoning_splitter_finish(struct reasoning_splitter *splitter) {
    text_marker_finish(&splitter->marker);
}

static void enter_reasoning(struct reasoning_splitter *splitter) {
    splitter->state = REASONING_INSIDE;
    text_marker_finish(&splitter->marker);
    text_marker_init(&splitter->marker, REASONING_END);
}

static void leave_reasoning(struct reasoning_splitter *splitter) {
    splitter->state = REASONING_OVER;
    splitter->content->skips_space = true;
    text_marker_reset(&splitter->marker);
}

static void push_inside(struct reasoning_splitter *splitter, char byte) {
    struct text_marker *marker = &splitter->marker;
    if (splitter->skips_space && marker->matched == 0 && text_is_space(byte))
        return;
    size_t num_text;
    if (text_marker_push(marker, byte, &num_text)) {
        leave_reasoning(splitter);
        return;
    }
    splitter->skips_space = splitter->skips_space && num_text == 0;
    output_parts_add(splitter->parts, OUTPUT_PART_REASONING, 0, marker->held.data, num_text);
    byte_buffer_consume(&marker->held, num_text);
}

/* The first marker does not come: what was held for it belongs to what follows. */
static void decide(struct reasoning_splitter *splitter) {
    struct byte_buffer text = splitter->marker.held;
    splitter->marker.held = (struct byte_buffer){0};
    if (splitter->is_open)
        enter_reasoning(splitter);
    else
        splitter->state = REASONING_OVER;
    splitter->content->failed = splitter->content->failed || text.failed;
    for (size_t i = 0; i < text.length; i++)
        reasoning_splitter_push(splitter, text.data[i]);
    byte_buffer_finish(&text);
}

static void push_start(struct reasoning_splitter *splitter, char byte) {
    size_t num_text;
    if (text_marker_push(&splitter->marker, byte, &num_text))
        enter_reasoning(splitter);
    else if (num_text > 0)
        decide(splitter);
}

void reasoning_splitter_push(struct reasoning_splitter *splitter, char byte) {
    switch (splitter->state) {
    case REASONING_START:
        push_start(splitter, byte);
        break;
    case REASONING_INSIDE:
        push_inside(splitter, byte);
        break;
    case REASONING_OVER:
        tool_parser_push(splitter->content, byte);
        break;
    }
    if (splitter->marker.held.failed)
        splitter->content->failed = true;
}

void reasoning_splitter_end(struct reasoning_splitter *splitter) {
    if (splitter->state == REASONING_START)
        decide(splitter);
    if (splitter->state == REASONING_INSIDE)
        output_parts_add(splitter->parts, OUTPUT_PART_REASONING, 0, splitter->marker.held.data,
                         splitter->marker.held.length);
    tool_parser_end(splitter->content);
}
