#include "server/api/conversation/chat_generation.h"

#include "config/base/check.h"
#include "server/api/call/api_call_type.h"
#include "server/api/conversation/chat_model.h"
#include "server/api/conversation/chat_prompt.h"
#include "server/api/conversation/tool_grammar.h"

#include <stdlib.h>
#include <string.h>

/* Logprob entries that one API call may produce, of prompt and output; each is about 50 bytes of
 * JSON that are kept until the call ends. */
#define MAX_LOGPROB_ENTRIES (4 << 20)

static enum tool_call_format used_tools(const struct chat_model *model,
                                        const struct conversation *conversation) {
    if (conversation_forces_calls(conversation))
        return tool_grammar_format(model->tools);
    return conversation->tool_choice == TOOL_CHOICE_NONE ? TOOL_CALL_FORMAT_NONE : model->tools;
}

static struct chat_choice_config choice_config(const struct chat_model *model,
                                               const struct conversation *conversation,
                                               const struct chat_prompt *prompt) {
    return (struct chat_choice_config){
        .parser = {.tools = used_tools(model, conversation),
                   .reasoning = prompt->has_reasoned ? REASONING_FORMAT_NONE : model->reasoning,
                   .begins_in_reasoning = prompt->begins_in_reasoning,
                   .is_forced = conversation_forces_calls(conversation),
                   .max_tool_calls = conversation->has_functions ? 1 : 0},
        .hides_reasoning = !conversation->include_reasoning,
        .allows_parallel = conversation->allows_parallel,
        .must_call_tools = conversation_forces_calls(conversation),
    };
}

static struct sampling_params make_params(const struct api_context *context,
                                          const struct conversation *conversation,
                                          int32_t num_prompt_tokens) {
    const struct chat_model *model = context->chat;
    const struct sampling_body *sampling = &conversation->sampling;
    struct sampling_params params = sampling_body_params(sampling, context, num_prompt_tokens,
                                                         conversation_num_logprobs(conversation),
                                                         sampling_body_seed(context, sampling));
    bool has_tools = used_tools(model, conversation) != TOOL_CALL_FORMAT_NONE;
    if ((has_tools && model->tools_need_special) || model->reasoning_needs_special)
        params.skip_special_tokens = false;
    return params;
}

/* Bounds the reasoning, unless the prompt has already closed it. */
static int set_thinking(const struct api_context *context, const struct conversation *conversation,
                        const struct output_parser_config *config, struct thinking_budget *out,
                        struct api_error *err) {
    const char *field =
        body_names_field(conversation->names->body, conversation->body, "thinking_token_budget");
    if (conversation->thinking_token_budget < 0)
        return 0;
    if (context->chat->reasoning == REASONING_FORMAT_NONE)
        return bad_request(err, "unsupported_value", field,
                           "%s is %lld, but this model has no reasoning parser: leave it "
                           "out or set it to -1 (--reasoning-parser)",
                           field, (long long)conversation->thinking_token_budget);
    if (config->reasoning == REASONING_FORMAT_NONE)
        return 0;
    const struct reasoning_markers *markers = reasoning_format_markers(config->reasoning);
    struct thinking_budget budget = {
        .begin = markers->begin,
        .end = markers->end,
        .begins_inside = config->begins_in_reasoning,
        .max_tokens = (int32_t)conversation->thinking_token_budget,
    };
    int64_t count =
        tokenizer_encode(context->tokenizer, markers->end, strlen(markers->end),
                         TOKENIZER_PARSE_SPECIAL, budget.end_tokens, MAX_THINKING_END_TOKENS);
    if (count < 0)
        return prompt_field_refuse((int)count, field, err);
    CHECK(count > 0 && count <= MAX_THINKING_END_TOKENS);
    budget.num_end_tokens = (int32_t)count;
    *out = budget;
    return 0;
}

static int make_request(const struct api_context *context, const struct conversation *conversation,
                        const struct prompt_tokens *tokens, const struct sampling_params *params,
                        struct request **out, struct api_error *err) {
    struct request *made = request_create(tokens->ids, tokens->count, params);
    if (made == NULL)
        return api_error_set_memory(err);
    if (api_call_set_scope(context, made, conversation->sampling.model,
                           conversation->sampling.priority, conversation->sampling.cache_salt,
                           err) != 0) {
        request_unref(made);
        return -1;
    }
    *out = made;
    return 0;
}

static int create_request(const struct api_context *context,
                          const struct conversation *conversation,
                          const struct prompt_tokens *tokens,
                          const struct chat_choice_config *config, struct request **out,
                          struct api_error *err) {
    struct sampling_params params = make_params(context, conversation, tokens->count);
    if (set_thinking(context, conversation, &config->parser, &params.thinking, err) != 0 ||
        chat_grammar_build(context, conversation, &config->parser, &params.grammar, err) != 0)
        return -1;
    int result = make_request(context, conversation, tokens, &params, out, err);
    grammar_unref(params.grammar);
    return result;
}

static int check_logprobs(const struct conversation *conversation, const struct request *made,
                          struct api_error *err) {
    int32_t num_logprobs = conversation_num_logprobs(conversation);
    int64_t num_entries =
        made->params.max_tokens * (int64_t)made->params.num_choices *
            sampling_body_logprob_entries(&conversation->sampling, num_logprobs) +
        (int64_t)made->num_prompt_tokens * (conversation->sampling.prompt_logprobs + 1);
    if (num_entries <= MAX_LOGPROB_ENTRIES)
        return 0;
    return bad_request(err, "out_of_range", num_logprobs >= 0 ? "top_logprobs" : "prompt_logprobs",
                       "the call may produce %lld logprob entries: at most %d are allowed; "
                       "request fewer logprobs, tokens or choices",
                       (long long)num_entries, MAX_LOGPROB_ENTRIES);
}

/* Copies what the choices' parsers may still need from the tools when the body is gone: the names
 * of those that may be called, the names of custom ones, and after them the types of the
 * parameters. */
static int copy_tools(const struct conversation *conversation, struct chat_generation *generation,
                      struct api_error *err) {
    struct output_parser_config *parser = &generation->config.parser;
    struct byte_buffer names = {0};
    for (int i = 0; i < conversation->num_tools; i++) {
        const struct tool *tool = &conversation->tools[i];
        if (tool->is_allowed)
            byte_buffer_append(&names, tool->name, strlen(tool->name) + 1);
        parser->num_bare_names += tool->is_allowed;
    }
    size_t allowed_bytes = names.length;
    for (int i = 0; i < conversation->num_tools; i++) {
        const struct tool *tool = &conversation->tools[i];
        if (tool->kind == TOOL_CUSTOM)
            byte_buffer_append(&names, tool->name, strlen(tool->name) + 1);
        generation->config.num_custom_names += tool->kind == TOOL_CUSTOM;
    }
    size_t num_name_bytes = names.length;
    tool_types_append(conversation, &names);
    if (names.failed) {
        byte_buffer_finish(&names);
        return api_error_set_memory(err);
    }
    generation->names = names.data;
    generation->config.custom_names = names.data != NULL ? names.data + allowed_bytes : NULL;
    parser->bare_names = parser->allowed_names = names.data;
    parser->num_allowed_names = conversation->has_allowed_tools ? parser->num_bare_names : 0;
    if (parser->is_forced || conversation->tool_choice == TOOL_CHOICE_NONE)
        parser->num_bare_names = 0;
    if (names.length > num_name_bytes)
        parser->parameter_types =
            (struct text){names.data + num_name_bytes, names.length - num_name_bytes};
    return 0;
}

int chat_generation_create(const struct api_context *context,
                           const struct conversation *conversation, struct chat_generation *out,
                           struct api_error *err) {
    struct chat_prompt prompt;
    struct request *made = NULL;
    const struct prompt_limits limits = sampling_body_prompt_limits(&conversation->sampling);
    if (chat_prompt_create(context, conversation, &limits, &prompt, err) != 0)
        return -1;
    struct chat_choice_config config = choice_config(context->chat, conversation, &prompt);
    int result = sampling_body_check_room(&conversation->sampling, context, "the prompt",
                                          prompt.tokens.count, err);
    if (result == 0)
        result = create_request(context, conversation, &prompt.tokens, &config, &made, err);
    free(prompt.tokens.ids);
    if (result != 0)
        return -1;
    if (check_logprobs(conversation, made, err) != 0) {
        request_unref(made);
        return -1;
    }
    struct chat_generation generation = {.request = made, .config = config};
    if (copy_tools(conversation, &generation, err) != 0) {
        request_unref(made);
        return -1;
    }
    *out = generation;
    return 0;
}

int chat_generation_create_plain(const struct api_context *context,
                                 const struct conversation *conversation,
                                 const struct prompt_tokens *tokens, struct chat_generation *out,
                                 struct api_error *err) {
    const struct sampling_body *sampling = &conversation->sampling;
    struct request *made = NULL;
    if (sampling_body_check_room(sampling, context, "the prompt", tokens->count, err) != 0)
        return -1;
    const struct sampling_params params = sampling_body_params(
        sampling, context, tokens->count, conversation_num_logprobs(conversation),
        sampling_body_seed(context, sampling));
    if (make_request(context, conversation, tokens, &params, &made, err) != 0)
        return -1;
    if (check_logprobs(conversation, made, err) != 0) {
        request_unref(made);
        return -1;
    }
    *out = (struct chat_generation){.request = made, .config = {.allows_parallel = true}};
    return 0;
}
