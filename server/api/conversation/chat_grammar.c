#include "server/api/conversation/chat_generation.h"

#include "engine/grammar/read/json_schema.h"
#include "server/api/constraint/response_format.h"
#include "engine/grammar/build/free_text.h"
#include "server/api/conversation/tool_grammar.h"
#include "server/api/conversation/tool_grammar_form.h"

#include <string.h>

#define MAX_LINE_FEEDS 2 /* between reasoning and answer */

static grammar_node literal(struct grammar_builder *builder, const char *text) {
    return grammar_literal(builder, text, strlen(text));
}

/* Returns any text up to the first marker, including the marker. */
static grammar_node text_until_marker(struct grammar_builder *builder,
                                      const struct tokenizer *tokenizer, const char *name) {
    int32_t token = tool_grammar_control_token(tokenizer, name);
    if (token < 0)
        return text_until_node(builder, name);
    grammar_node items[] = {
        grammar_repeat(builder, grammar_characters(builder, NULL, 0, true), 0, -1),
        grammar_token(builder, token)};
    return grammar_sequence(builder, items, 2);
}

static grammar_node optional(struct grammar_builder *builder, const grammar_node *items,
                             int count) {
    return grammar_repeat(builder, grammar_sequence(builder, items, count), 0, 1);
}

/* Adds Harmony's frame: an analysis message may come first, and an answer that is not a call is in
 * the final channel. */
static grammar_node add_harmony(struct grammar_builder *builder, const struct tokenizer *tokenizer,
                                grammar_node answer, bool is_call) {
    grammar_node channel = tool_grammar_marker(builder, tokenizer, "<|channel|>");
    grammar_node message = tool_grammar_marker(builder, tokenizer, "<|message|>");
    grammar_node analysis[] = {channel,
                               literal(builder, "analysis"),
                               message,
                               text_until_marker(builder, tokenizer, "<|end|>"),
                               tool_grammar_marker(builder, tokenizer, "<|start|>"),
                               literal(builder, "assistant")};
    grammar_node items[] = {optional(builder, analysis, 6), channel, literal(builder, "final"),
                            message, answer};
    if (!is_call)
        return grammar_sequence(builder, items, 5);
    items[1] = answer;
    return grammar_sequence(builder, items, 2);
}

/* Puts the model's reasoning in front of an answer whose form is forced: the rest of it if the
 * prompt has opened it, otherwise optional reasoning. The output parser then finds only the answer
 * after it. */
static grammar_node add_reasoning(struct grammar_builder *builder,
                                  const struct tool_grammar_config *config, grammar_node answer) {
    const struct output_parser_config *model = &config->model;
    const struct reasoning_markers *markers = reasoning_format_markers(model->reasoning);
    if (markers == NULL)
        return answer;
    grammar_node items[] = {tool_grammar_marker(builder, config->tokenizer, markers->begin),
                            text_until_marker(builder, config->tokenizer, markers->end),
                            grammar_repeat(builder, literal(builder, "\n"), 0, MAX_LINE_FEEDS),
                            answer};
    if (model->begins_in_reasoning)
        return grammar_sequence(builder, items + 1, 3);
    grammar_node choices[] = {optional(builder, items, 3), answer};
    return grammar_sequence(builder, choices, 2);
}

/* Adds to the form that the body requests what else the model may do. */
static int frame_form(const void *context, struct grammar_builder *builder, grammar_node form,
                      grammar_node *out, struct api_error *err) {
    const struct tool_grammar_config *config = context;
    bool is_harmony = config->model.reasoning == REASONING_FORMAT_HARMONY;
    grammar_node choices[] = {form, GRAMMAR_FAILED};
    bool has_tools = config->model.tools != TOOL_CALL_FORMAT_NONE;
    if (has_tools && tool_grammar_calls(config, builder, &choices[1], err) != 0)
        return -1;
    if (is_harmony) {
        choices[0] = add_harmony(builder, config->tokenizer, form, false);
        if (has_tools)
            choices[1] = add_harmony(builder, config->tokenizer, choices[1], true);
    }
    form = has_tools ? grammar_alternatives(builder, choices, 2) : choices[0];
    *out = is_harmony ? form : add_reasoning(builder, config, form);
    return 0;
}

static void append_key(const void *context, struct byte_buffer *key) {
    const struct tool_grammar_config *config = context;
    const struct conversation *conversation = config->conversation;
    byte_buffer_printf(key, "%d %d %d %d %d", (int)config->model.tools,
                       (int)config->model.reasoning, config->model.begins_in_reasoning,
                       (int)conversation->tool_choice, conversation->allows_parallel);
    for (int i = 0; i < conversation->num_tools; i++) {
        const struct tool *tool = &conversation->tools[i];
        /* A client's function can look like a custom tool, whose grammar is different. */
        byte_buffer_printf(key, " %d %d", (int)tool->kind, tool->is_allowed);
        response_format_append_key(tool->shown, "tool", key);
    }
}

static int build_calls(const struct tool_grammar_config *config, struct byte_buffer *ignored,
                       struct grammar **out, struct api_error *err) {
    struct grammar_builder *builder = grammar_builder_create();
    grammar_node calls;
    if (builder == NULL)
        return api_error_set_memory(err);
    grammar_builder_ignore(builder, ignored);
    int status = tool_grammar_calls(config, builder, &calls, err);
    if (status == 0) {
        calls = config->model.reasoning == REASONING_FORMAT_HARMONY
                    ? add_harmony(builder, config->tokenizer, calls, true)
                    : add_reasoning(builder, config, calls);
        status = json_schema_build(builder, calls, config->conversation->names->tools, out, err);
    }
    grammar_builder_destroy(builder);
    return status;
}

static int build_forced(const struct tool_grammar_config *config, struct grammar_cache *cache,
                        struct byte_buffer *ignored, struct grammar **out, struct api_error *err) {
    struct byte_buffer key = {0};
    struct grammar *grammar = NULL;
    int result = 0;
    append_key(config, &key);
    struct text text = {key.data, key.length};
    if (cache != NULL && !key.failed)
        grammar = grammar_cache_find(cache, text);
    if (grammar == NULL) {
        result = build_calls(config, ignored, &grammar, err);
        if (result == 0 && cache != NULL && !key.failed)
            grammar_cache_add(cache, text, grammar);
    }
    byte_buffer_finish(&key);
    if (result == 0)
        *out = grammar;
    return result;
}

int chat_grammar_build(const struct api_context *context, const struct conversation *conversation,
                       const struct output_parser_config *model, struct grammar **out,
                       struct api_error *err) {
    const struct tool_grammar_config config = {conversation, *model, context->tokenizer};
    const struct response_frame frame = {frame_form, append_key, &config};
    bool is_framed =
        model->reasoning != REASONING_FORMAT_NONE || model->tools != TOOL_CALL_FORMAT_NONE;
    struct byte_buffer named = {0}; /* already reported when the body was read */
    struct byte_buffer *ignored = context->ignores_schema_keywords ? &named : NULL;
    struct grammar *grammar = conversation->sampling.grammar;
    int result = 0;
    if (conversation_forces_calls(conversation))
        result = build_forced(&config, context->grammars, ignored, out, err);
    else if (grammar != NULL && is_framed)
        result = response_format_read(conversation->body, conversation->names->body, &frame,
                                      context->grammars, ignored, out, err);
    else
        *out = grammar != NULL ? grammar_ref(grammar) : NULL;
    byte_buffer_finish(&named);
    return result;
}
