#include "server/api/conversation/chat_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Returns whether the text is one control token, which is left out of a choice's text unless
 * requested. */
static bool is_control_token(const struct tokenizer *tokenizer, const char *text) {
    int32_t token;
    return tokenizer_encode(tokenizer, text, strlen(text), TOKENIZER_PARSE_SPECIAL, &token, 1) ==
               1 &&
           tokenizer_is_special(tokenizer, token);
}

static int read_formats(const struct chat_model_config *config, struct chat_model *model,
                        struct error *err) {
    const char *source =
        config->tool_template != NULL ? config->tool_template : config->chat_template;
    if (strcmp(config->tool_call_parser, "auto") == 0)
        model->tools =
            source != NULL ? tool_call_format_of_template(source) : TOOL_CALL_FORMAT_NONE;
    else if (!tool_call_format_find(config->tool_call_parser, &model->tools))
        return error_set(err, ERROR_CONFIG, "unknown tool call parser \"%.64s\"",
                         config->tool_call_parser);
    bool may_write =
        strcmp(config->tool_call_parser, "auto") == 0 || model->tools == TOOL_CALL_FORMAT_HERMES;
    model->writes_tools = source != NULL && strstr(source, "tool") == NULL && may_write;
    if (model->writes_tools)
        model->tools = TOOL_CALL_FORMAT_HERMES;
    if (strcmp(config->reasoning_parser, "auto") == 0)
        model->reasoning = config->chat_template != NULL
                               ? reasoning_format_of_template(config->chat_template)
                               : REASONING_FORMAT_NONE;
    else if (!reasoning_format_find(config->reasoning_parser, &model->reasoning))
        return error_set(err, ERROR_CONFIG, "unknown reasoning parser \"%.64s\"",
                         config->reasoning_parser);
    return 0;
}

/* Returns -1 when memory is short. */
static int compile(const char *source, const char *name, struct chat_template **out,
                   struct chat_model *model, struct error *err) {
    struct error why = {0};
    if (source == NULL || chat_template_create(source, strlen(source), out, &why) == 0)
        return 0;
    if (why.code == ERROR_MEMORY)
        return error_set(err, ERROR_MEMORY, "%s", why.message);
    snprintf(model->problem, sizeof(model->problem), "the %s cannot be used: %.200s", name,
             why.message);
    return 0;
}

static void probe(const struct chat_model *model, const struct chat_template *chat_template,
                  const char *source, struct chat_message_form *out) {
    if (chat_template != NULL)
        chat_form_probe(chat_template, source, model->tokenizer, model->writes_tools, out);
}

static int fill(const struct tokenizer *tokenizer, const struct chat_model_config *config,
                struct chat_model *model, struct error *err) {
    if (config->chat_template == NULL)
        snprintf(model->problem, sizeof(model->problem), "the model has no chat template");
    if (compile(config->chat_template, "chat template", &model->chat_template, model, err) != 0 ||
        compile(config->tool_template, "chat template for tools", &model->tool_template, model,
                err) != 0 ||
        read_formats(config, model, err) != 0)
        return -1;
    model->source = config->chat_template;
    const char *marker = tool_call_format_marker(model->tools);
    model->tools_need_special = tool_call_format_needs_special(model->tools) ||
                                (marker != NULL && is_control_token(tokenizer, marker));
    const struct reasoning_markers *markers = reasoning_format_markers(model->reasoning);
    model->reasoning_needs_special =
        model->reasoning == REASONING_FORMAT_HARMONY ||
        (markers != NULL && is_control_token(tokenizer, markers->begin));
    model->tokenizer = tokenizer;
    probe(model, model->chat_template, config->chat_template, &model->form);
    probe(model, model->tool_template, config->tool_template, &model->tool_form);
    return 0;
}

int chat_model_create(const struct tokenizer *tokenizer, const struct chat_model_config *config,
                      struct chat_model **out, struct error *err) {
    struct chat_model *model = calloc(1, sizeof(*model));
    if (model == NULL)
        return error_set(err, ERROR_MEMORY, "not enough memory for the chat template");
    if (fill(tokenizer, config, model, err) != 0) {
        chat_model_destroy(model);
        return -1;
    }
    *out = model;
    return 0;
}

int chat_model_with_template(const struct chat_model *model, const char *source,
                             struct chat_model *out, struct error *err) {
    struct chat_model made = *model;
    made.tool_template = NULL;
    made.source = NULL;
    made.writes_tools = model->tools == TOOL_CALL_FORMAT_HERMES && strstr(source, "tool") == NULL;
    if (chat_template_create_client(source, strlen(source), &made.chat_template, err) != 0)
        return -1;
    probe(&made, made.chat_template, source, &made.form);
    *out = made;
    return 0;
}

void chat_model_destroy(struct chat_model *model) {
    if (model == NULL)
        return;
    chat_template_destroy(model->chat_template);
    chat_template_destroy(model->tool_template);
    free(model);
}
