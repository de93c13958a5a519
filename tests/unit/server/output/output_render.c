#include "tests/unit/server/output/output_render.h"

#include "config/base/check.h"

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
    render->last_kind = (int)part->kind;
    render->last_index = part->tool_index;
}

void output_render_push(struct output_render *render, const char *text, size_t length,
                        bool is_end) {
    struct output_part part;
    CHECK(output_parser_push(render->parser, text, length, is_end) == 0);
    while (output_parser_next(render->parser, &part))
        add_part(render, &part);
    CHECK(!render->text.failed && !render->reasoning.failed && !render->content.failed);
}

void output_render_finish(struct output_render *render) {
    output_parser_destroy(render->parser);
    byte_buffer_finish(&render->text);
    byte_buffer_finish(&render->reasoning);
    byte_buffer_finish(&render->content);
}
