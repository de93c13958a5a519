#include "server/api/conversation/chat_parts.h"

#include "server/output/tool_call.h"

#include <stdlib.h>

int chat_parts_init(struct chat_parts *parts, const struct chat_generation *generation,
                    struct api_error *err) {
    const struct chat_choice_config *config = &generation->config;
    *parts = (struct chat_parts){
        .parser = output_parser_create(&config->parser),
        .names = generation->names,
        .custom_names = config->custom_names,
        .num_custom_names = config->num_custom_names,
        .hides_reasoning = config->hides_reasoning,
        .hides_content = config->must_call_tools,
        .max_tool_calls = config->allows_parallel ? OUTPUT_MAX_TOOL_CALLS : 1,
    };
    return parts->parser != NULL ? 0 : api_error_set_memory(err);
}

void chat_parts_finish(struct chat_parts *parts) {
    output_parser_destroy(parts->parser);
    free(parts->names);
    byte_buffer_finish(&parts->converted);
}

int chat_parts_push(struct chat_parts *parts, const struct token_event *event) {
    parts->num_generated = event->num_generated;
    return output_parser_push(parts->parser, event->text, event->text_bytes,
                              chat_choice_end_of(event));
}

static bool is_left_out(const struct chat_parts *parts, const struct output_part *part) {
    switch (part->kind) {
    case OUTPUT_PART_REASONING:
        return parts->hides_reasoning;
    case OUTPUT_PART_TOOL_CALL:
    case OUTPUT_PART_TOOL_ARGUMENTS:
        return part->tool_index >= parts->max_tool_calls;
    default:
        return parts->hides_content;
    }
}

/* Marks a call of a custom tool, and converts its arguments to its input. Returns false if they add
 * nothing to it. */
static bool convert(struct chat_parts *parts, struct output_part *part) {
    if (part->kind == OUTPUT_PART_TOOL_CALL) {
        parts->is_custom = tool_call_name_is_listed(parts->custom_names, parts->num_custom_names,
                                                    part->text, part->length);
        parts->input = (struct custom_input){0};
    }
    part->is_custom = parts->is_custom;
    if (part->kind != OUTPUT_PART_TOOL_ARGUMENTS || !parts->is_custom)
        return true;
    byte_buffer_clear(&parts->converted);
    custom_input_push(&parts->input, part->text, part->length, &parts->converted);
    part->text = parts->converted.data;
    part->length = parts->converted.length;
    return part->length > 0;
}

bool chat_parts_next(struct chat_parts *parts, struct output_part *out) {
    while (output_parser_next(parts->parser, out)) {
        if (out->kind == OUTPUT_PART_REASONING)
            parts->num_reasoning_tokens = parts->num_generated;
        if (!is_left_out(parts, out) && convert(parts, out))
            return true;
    }
    return false;
}
