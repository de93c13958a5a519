/* The served model as it chats: its template, and the model's conventions that the template shows.
 * Const once the server runs, shared by all threads. */
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
    const char *source;                  /* of chat_template: the config's, borrowed; NULL: none */
    char problem[256];                   /* of one of the two; empty: none */
    const struct tokenizer *tokenizer;   /* borrowed */
    /* How the two take messages. */
    struct chat_message_form form, tool_form;
    enum tool_call_format tools;
    bool tools_need_special; /* markers of tool calls are control tokens */
    bool writes_tools;       /* the template knows no tools: chat_prompt.h describes them in text */
    enum reasoning_format reasoning;
    bool reasoning_needs_special;
};

struct chat_model_config {
    const char *chat_template;    /* Jinja source; NULL: none */
    const char *tool_template;    /* another one for chats with tools; NULL: none */
    const char *tool_call_parser; /* a name of tool_call_format_find, or "auto" */
    const char *reasoning_parser; /* a name of reasoning_format_find, or "auto" */
};

/* Parses the templates; a source that cannot be parsed makes a model without one. The tokenizer and
 * the source of chat_template outlive the model. -1 when memory is short, or a parser's name is
 * unknown. */
int chat_model_create(const struct tokenizer *tokenizer, const struct chat_model_config *config,
                      struct chat_model **out, struct error *err);
/* Makes *out the model with a template that a client brings, for chats with tools too; it shares
 * the rest with the model: tool calls and reasoning are written as there. ERROR_SYNTAX,
 * ERROR_MEMORY as chat_template_create_client. chat_template_destroy(out->chat_template) is all
 * that it takes. */
int chat_model_with_template(const struct chat_model *model, const char *source,
                             struct chat_model *out, struct error *err);
void chat_model_destroy(struct chat_model *model); /* accepts NULL */

#endif
