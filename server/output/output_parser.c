/* A pipeline that takes the text byte by byte: the reasoning parser, or harmony's, writes reasoning
 * and passes the rest to the tool parser, which writes content and tool calls. As no stage sees
 * where a push ends, how the text is cut cannot matter. */
#include "server/output/output_parser.h"

#include "server/output/harmony_parser.h"
#include "server/output/reasoning_parser.h"

#include <stdlib.h>

struct output_parser {
    struct output_parts parts;
    bool is_harmony;
    struct reasoning_parser reasoning; /* unused in harmony */
    struct harmony_parser harmony;     /* unused elsewhere */
    struct tool_parser content;
};

struct output_parser *output_parser_create(const struct output_parser_config *config) {
    struct output_parser *parser = calloc(1, sizeof(*parser));
    if (parser == NULL)
        return NULL;
    tool_parser_init(&parser->content, tool_format_of(config->tools), &parser->parts);
    parser->content.sink.allowed_names = config->allowed_names;
    parser->content.sink.num_allowed_names = config->num_allowed_names;
    parser->content.sink.max_calls =
        config->max_tool_calls > 0 ? config->max_tool_calls : OUTPUT_MAX_TOOL_CALLS;
    parser->content.sink.streams = config->is_forced;
    parser->content.parameter_types = config->parameter_types;
    if (parser->content.format != NULL && parser->content.format->takes_bare) {
        parser->content.bare_names = config->bare_names;
        parser->content.num_bare_names = config->num_bare_names;
    }
    parser->is_harmony =
        config->tools == TOOL_CALL_FORMAT_HARMONY || config->reasoning == REASONING_FORMAT_HARMONY;
    if (parser->is_harmony)
        harmony_parser_init(&parser->harmony, config, &parser->parts, &parser->content);
    else
        reasoning_parser_init(&parser->reasoning, config, &parser->parts, &parser->content);
    return parser;
}

void output_parser_destroy(struct output_parser *parser) {
    if (parser == NULL)
        return;
    reasoning_parser_finish(&parser->reasoning);
    harmony_parser_finish(&parser->harmony);
    tool_parser_finish(&parser->content);
    output_parts_finish(&parser->parts);
    free(parser);
}

static bool has_failed(const struct output_parser *parser) {
    return parser->content.failed || output_parts_failed(&parser->parts);
}

static void push_byte(struct output_parser *parser, char byte) {
    if (parser->is_harmony)
        harmony_parser_push(&parser->harmony, byte);
    else
        reasoning_parser_push(&parser->reasoning, byte);
}

static void end(struct output_parser *parser, bool is_cut) {
    if (parser->is_harmony)
        harmony_parser_end(&parser->harmony, is_cut);
    else
        reasoning_parser_end(&parser->reasoning, is_cut);
}

int output_parser_push(struct output_parser *parser, const char *text, size_t length,
                       enum output_end how) {
    for (size_t i = 0; i < length && !has_failed(parser); i++)
        push_byte(parser, text[i]);
    if (how != OUTPUT_GOES_ON && !has_failed(parser))
        end(parser, how == OUTPUT_IS_CUT);
    return has_failed(parser) ? -1 : 0;
}

bool output_parser_next(struct output_parser *parser, struct output_part *out) {
    return output_parts_take(&parser->parts, out);
}

int32_t output_parser_num_tool_calls(const struct output_parser *parser) {
    return parser->content.sink.num_calls;
}

bool output_parser_is_broken(const struct output_parser *parser) {
    return parser->content.sink.is_broken;
}
