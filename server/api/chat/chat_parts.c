#include "server/api/chat/chat_parts.h"

#include <stdlib.h>

int chat_parts_init(struct chat_parts *parts, const struct chat_generation *generation,
                    struct api_error *err) {
    const struct chat_choice_config *config = &generation->config;
    *parts = (struct chat_parts){
        .parser = output_parser_create(&config->parser),
        .allowed_names = generation->allowed_names,
        .hides_reasoning = config->hides_reasoning,
        .hides_content = config->must_call_tools,
        .max_tool_calls = config->allows_parallel ? OUTPUT_MAX_TOOL_CALLS : 1,
    };
    return parts->parser != NULL ? 0 : api_error_set_memory(err);
}

void chat_parts_finish(struct chat_parts *parts) {
    output_parser_destroy(parts->parser);
    free(parts->allowed_names);
}

int chat_parts_push(struct chat_parts *parts, const struct token_event *event) {
    parts->num_generated = event->num_generated;
    return output_parser_push(parts->parser, event->text, event->text_bytes,
                              event->finish != FINISH_NONE);
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

bool chat_parts_next(struct chat_parts *parts, struct output_part *out) {
    while (output_parser_next(parts->parser, out)) {
        if (out->kind == OUTPUT_PART_REASONING)
            parts->num_reasoning_tokens = parts->num_generated;
        if (!is_left_out(parts, out))
            return true;
    }
    return false;
}
