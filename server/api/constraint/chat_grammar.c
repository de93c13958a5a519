#include "server/api/constraint/chat_grammar.h"

#include "server/api/constraint/reasoning_grammar.h"
#include "server/api/constraint/response_format.h"
#include "server/api/constraint/tool_grammar.h"

static int put(const void *context, struct grammar_builder *builder, grammar_node form,
               grammar_node *out, struct api_error *err) {
    const struct tool_grammar_config *config = context;
    grammar_node choices[] = {form, GRAMMAR_FAILED};
    if (config->model.tools != TOOL_CALL_FORMAT_NONE) {
        if (tool_grammar_calls(config, builder, &choices[1], err) != 0)
            return -1;
        form = grammar_alternatives(builder, choices, 2);
    }
    *out = reasoning_grammar_before(builder, &config->model, form);
    return 0;
}

int chat_grammar_build(const struct api_context *context, const struct chat_body *body,
                       const struct output_parser_config *model, struct grammar **out,
                       struct api_error *err) {
    const struct tool_grammar_config config = {&body->tools, *model, context->tokenizer};
    const struct response_frame frame = {put, &config};
    bool is_framed =
        model->reasoning != REASONING_FORMAT_NONE || model->tools != TOOL_CALL_FORMAT_NONE;
    if (tool_grammar_is_forced(&body->tools))
        return tool_grammar_build(&config, out, err);
    struct grammar *grammar = body->sampling.grammar;
    if (grammar != NULL && is_framed)
        return response_format_read(body->json, &frame, out, err);
    *out = grammar != NULL ? grammar_ref(grammar) : NULL;
    return 0;
}
