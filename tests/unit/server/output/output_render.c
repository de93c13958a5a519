#include "tests/unit/server/output/output_render.h"

#include "config/base/check.h"
#include "server/output/json_stream.h"

#include <string.h>

void output_render_begin(struct output_render *render, const struct output_parser_config *config) {
    *render = (struct output_render){.parser = output_parser_create(config), .last_kind = -1};
    CHECK(render->parser != NULL);
}

static void add_part(struct output_render *render, const struct output_part *part) {
    static const char *const names[] = {"reasoning", "content", "call", "arguments"};
    bool is_new = (int)part->kind != render->last_kind || part->tool_index != render->last_index ||
                  part->kind == OUTPUT_PART_TOOL_CALL;
    CHECK(part->length > 0);
    if (is_new && part->kind < OUTPUT_PART_TOOL_CALL)
        byte_buffer_printf(&render->text, "|%s:", names[part->kind]);
    else if (is_new)
        byte_buffer_printf(&render->text, "|%s %d:", names[part->kind], part->tool_index);
    byte_buffer_append(&render->text, part->text, part->length);
    if (part->kind == OUTPUT_PART_REASONING)
        byte_buffer_append(&render->reasoning, part->text, part->length);
    if (part->kind == OUTPUT_PART_CONTENT)
        byte_buffer_append(&render->content, part->text, part->length);
    if (part->kind == OUTPUT_PART_TOOL_CALL && part->tool_index > 0)
        byte_buffer_append(&render->arguments, "", 1);
    if (part->kind == OUTPUT_PART_TOOL_ARGUMENTS)
        byte_buffer_append(&render->arguments, part->text, part->length);
    render->last_kind = (int)part->kind;
    render->last_index = part->tool_index;
}

void output_render_push(struct output_render *render, const char *text, size_t length,
                        enum output_end how) {
    struct output_part part;
    CHECK(output_parser_push(render->parser, text, length, how) == 0);
    while (output_parser_next(render->parser, &part))
        add_part(render, &part);
    if (how != OUTPUT_GOES_ON && output_parser_num_tool_calls(render->parser) > 0)
        byte_buffer_append(&render->arguments, "", 1);
    CHECK(!render->arguments.failed && !render->text.failed && !render->reasoning.failed &&
          !render->content.failed);
}

/* Strict JSON is what json_stream.h writes as it stands; a literal of Python's may be deeper. */
static bool is_object(const char *text, size_t length) {
    struct json_stream json;
    size_t at = 0;
    enum json_stream_step step = JSON_STREAM_MORE;
    json_stream_init(&json);
    for (size_t read = 0; read < length && step == JSON_STREAM_MORE; read++) {
        step = json_stream_push(&json, text[read]);
        if (step == JSON_STREAM_BAD && json.depth == JSON_STREAM_MAX_DEPTH)
            return true;
        if (json.num_out > length - at || memcmp(text + at, json.out, json.num_out) != 0)
            return false;
        at += json.num_out;
    }
    return text[0] == '{' && step == JSON_STREAM_DONE && at == length;
}

bool output_render_calls_are_whole(const struct output_render *render) {
    const char *text = render->arguments.data;
    size_t length = 0;
    for (size_t at = 0; at < render->arguments.length; at += length + 1) {
        length = strlen(text + at);
        if (!is_object(text + at, length))
            return false;
    }
    return true;
}

void output_render_finish(struct output_render *render) {
    output_parser_destroy(render->parser);
    byte_buffer_finish(&render->text);
    byte_buffer_finish(&render->reasoning);
    byte_buffer_finish(&render->content);
    byte_buffer_finish(&render->arguments);
}
