/* {"name": "f", "parameters": {"a": 1}}; {"name": "g", "parameters": {}}
 *
 * The form that the chat templates of Llama 3.1 to 3.3 request, as the whole of the message;
 * <|python_tag|> may stand in front of it. An object that has not both a name and parameters is an
 * answer that happens to be JSON. */
#include "server/output/tool_parser.h"

enum llama3_state {
    LLAMA3_START,
    LLAMA3_OBJECT,
    LLAMA3_NEXT,      /* after an object */
    LLAMA3_SEPARATED, /* after its ';' */
};

static void begin(struct tool_parser *parser) {
    parser->state = LLAMA3_START;
}

static enum tool_step push_object(struct tool_parser *parser, char byte) {
    enum tool_call_step step = tool_call_object_push(&parser->object, byte);
    if (step == TOOL_CALL_DONE) {
        parser->state = LLAMA3_NEXT;
        parser->between_tool_calls = true;
    }
    return step == TOOL_CALL_BAD ? TOOL_BAD : TOOL_MORE;
}

static enum tool_step push(struct tool_parser *parser, char byte) {
    if (parser->state == LLAMA3_OBJECT)
        return push_object(parser, byte);
    if (text_is_space(byte))
        return TOOL_MORE;
    if (parser->state == LLAMA3_NEXT && byte == ';') {
        parser->state = LLAMA3_SEPARATED;
        return TOOL_MORE;
    }
    if (byte != '{' || !tool_call_sink_has_room(&parser->sink))
        return parser->state == LLAMA3_START ? TOOL_BAD : TOOL_END_BEFORE;
    tool_call_object_begin(&parser->object, &parser->sink, true);
    parser->state = LLAMA3_OBJECT;
    parser->between_tool_calls = false;
    return push_object(parser, byte);
}

const struct tool_format tool_llama3_format = {.marker = "<|python_tag|>",
                                               .opens_bare = '{',
                                               .takes_bare = true,
                                               .begin = begin,
                                               .push = push};
