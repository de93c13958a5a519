#include "server/api/constraint/chat_grammar.h"

#include "server/api/constraint/json_schema.h"
#include "server/api/constraint/response_format.h"
#include "server/api/constraint/text_until.h"
#include "server/api/constraint/tool_grammar.h"

#include <string.h>

#define MAX_LINE_FEEDS 2 /* between reasoning and answer */

static grammar_node literal(struct grammar_builder *builder, const char *text) {
    return grammar_literal(builder, text, strlen(text));
}

/* Returns everything up to the first "</think>", and that. */
static grammar_node reasoning(struct grammar_builder *builder) {
    grammar_node items[] = {text_until_node(builder, "</think>"),
                            grammar_repeat(builder, literal(builder, "\n"), 0, MAX_LINE_FEEDS)};
    return grammar_sequence(builder, items, 2);
}

/* Puts the model's reasoning in front of an answer whose own form is forced: what is left of it
 * where the prompt has opened it, else optional. The output parser then finds the answer, and
 * nothing else, behind it. */
static grammar_node add_reasoning(struct grammar_builder *builder,
                                  const struct output_parser_config *model, grammar_node answer) {
    if (model->reasoning == REASONING_FORMAT_NONE)
        return answer;
    grammar_node inside = reasoning(builder);
    if (!model->begins_in_reasoning) {
        grammar_node opened[] = {literal(builder, "<think>"), inside};
        inside = grammar_repeat(builder, grammar_sequence(builder, opened, 2), 0, 1);
    }
    grammar_node items[] = {inside, answer};
    return grammar_sequence(builder, items, 2);
}

/* Adds to the form that the body requests what the model may do besides. */
static int frame_form(const void *context, struct grammar_builder *builder, grammar_node form,
                      grammar_node *out, struct api_error *err) {
    const struct tool_grammar_config *config = context;
    grammar_node choices[] = {form, GRAMMAR_FAILED};
    if (config->model.tools != TOOL_CALL_FORMAT_NONE) {
        if (tool_grammar_calls(config, builder, &choices[1], err) != 0)
            return -1;
        form = grammar_alternatives(builder, choices, 2);
    }
    *out = add_reasoning(builder, &config->model, form);
    return 0;
}

static void append_key(const void *context, struct byte_buffer *key) {
    const struct tool_grammar_config *config = context;
    const struct tool_fields *fields = config->fields;
    byte_buffer_printf(key, "%d %d %d %d %d", (int)config->model.tools,
                       (int)config->model.reasoning, config->model.begins_in_reasoning,
                       (int)fields->choice, fields->allows_parallel);
    for (int32_t i = 0; i < fields->num_allowed; i++)
        byte_buffer_append(key, fields->allowed[i], strlen(fields->allowed[i]) + 1);
    if (fields->named != NULL)
        response_format_append_key(fields->named, "named", key);
    if (fields->tools != NULL)
        response_format_append_key(fields->tools, "tools", key);
}

static int build_calls(const struct tool_grammar_config *config, struct grammar **out,
                       struct api_error *err) {
    struct grammar_builder *builder = grammar_builder_create();
    grammar_node calls;
    if (builder == NULL)
        return api_error_set_memory(err);
    int status = tool_grammar_calls(config, builder, &calls, err);
    if (status == 0) {
        calls = add_reasoning(builder, &config->model, calls);
        status = json_schema_build(builder, calls, "tools", out, err);
    }
    grammar_builder_destroy(builder);
    return status;
}

static int build_forced(const struct tool_grammar_config *config, struct grammar_cache *cache,
                        struct grammar **out, struct api_error *err) {
    struct byte_buffer key = {0};
    struct grammar *grammar = NULL;
    int result = 0;
    append_key(config, &key);
    struct text text = {key.data, key.length};
    if (cache != NULL && !key.failed)
        grammar = grammar_cache_find(cache, text);
    if (grammar == NULL) {
        result = build_calls(config, &grammar, err);
        if (result == 0 && cache != NULL && !key.failed)
            grammar_cache_add(cache, text, grammar);
    }
    byte_buffer_finish(&key);
    if (result == 0)
        *out = grammar;
    return result;
}

int chat_grammar_build(const struct api_context *context, const struct chat_body *body,
                       const struct output_parser_config *model, struct grammar **out,
                       struct api_error *err) {
    const struct tool_grammar_config config = {&body->tools, *model, context->tokenizer};
    const struct response_frame frame = {frame_form, append_key, &config};
    bool is_framed =
        model->reasoning != REASONING_FORMAT_NONE || model->tools != TOOL_CALL_FORMAT_NONE;
    if (tool_grammar_is_forced(&body->tools))
        return build_forced(&config, context->grammars, out, err);
    struct grammar *grammar = body->sampling.grammar;
    if (grammar != NULL && is_framed)
        return response_format_read(body->json, &frame, context->grammars, out, err);
    *out = grammar != NULL ? grammar_ref(grammar) : NULL;
    return 0;
}
