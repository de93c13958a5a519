/* What a chat needs to know about the served model: its template, and the model's conventions,
 * which the template shows. Const once the server runs, shared by all threads. */
#ifndef QUIRE_SERVER_API_CONVERSATION_CHAT_MODEL_H
#define QUIRE_SERVER_API_CONVERSATION_CHAT_MODEL_H

#include "config/base/error.h"
#include "config/base/text.h"
#include "models/chat_template/chat_template.h"
#include "models/tokenizer/tokenizer.h"
#include "server/api/conversation/chat_form.h"
#include "server/output/output_parser.h"

#include <stdbool.h>

struct chat_model {
    struct chat_template *chat_template; /* owned; NULL: none, and `problem` says why */
    struct chat_template *tool_template; /* owned; for chats with tools; NULL: chat_template */
    const char *source;                /* of chat_template; borrowed from the config; NULL: none */
    char problem[256];                 /* of one of the two templates; empty: none */
    const struct tokenizer *tokenizer; /* borrowed */
    /* How the two templates take messages. */
    struct chat_message_form form, tool_form;
    enum tool_call_format tools;
    bool tools_need_special; /* markers of tool calls are control tokens */
    bool writes_tools; /* the template does not know tools: chat_prompt.h describes them in text */
    enum reasoning_format reasoning;
    bool reasoning_needs_special;
};

struct chat_model_config {
    const char *chat_template;    /* Jinja source; NULL: none */
    const char *tool_template;    /* a different one for chats with tools; NULL: none */
    const char *tool_call_parser; /* a name of tool_call_format_find, or "auto" */
    const char *reasoning_parser; /* a name of reasoning_format_find, or "auto" */
};

/* Parses the templates; if a source cannot be parsed, the model is without that template. The
 * tokenizer and the source of chat_template must outlive the model. Returns -1 when memory is
 * short, or a parser's name is unknown. */
int chat_model_create(const struct tokenizer *tokenizer, const struct chat_model_config *config,
                      struct chat_model **out, struct error *err);
/* Makes *out the model with a template from a client, which also serves chats with tools. It shares
 * the rest with the model: tool calls and reasoning are written in the same way. ERROR_SYNTAX and
 * ERROR_MEMORY like chat_template_create_client. To free it, only
 * chat_template_destroy(out->chat_template) is needed. */
int chat_model_with_template(const struct chat_model *model, const char *source,
                             struct chat_model *out, struct error *err);
void chat_model_destroy(struct chat_model *model); /* accepts NULL */

#endif
