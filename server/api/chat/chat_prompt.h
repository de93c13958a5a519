/* The prompt of a chat: the model's template renders the messages, and the tokenizer encodes the
 * result. Where the template knows no tools, they are described in the system message, or else in
 * the first one of a user, and called in hermes' form. */
#ifndef QUIRE_SERVER_API_CHAT_CHAT_PROMPT_H
#define QUIRE_SERVER_API_CHAT_CHAT_PROMPT_H

#include "models/chat_template/template_value.h"
#include "server/api/call/api_context.h"
#include "config/json/api_error.h"
#include "server/api/fields/prompt_field.h"

#include <cjson/cJSON.h>
#include <stdbool.h>

/* Memory of one rendering for values, the template's own work and the text: a few times the largest
 * body. */
#define CHAT_PROMPT_ARENA_BYTES ((size_t)96 << 20)

/* Parts of a body; NULL or null: absent. */
struct chat_prompt_fields {
    const cJSON *messages;
    const cJSON *tools;           /* checked (tool_fields.h); NULL: none are shown */
    const cJSON *documents;       /* a list of objects, for templates that know some */
    const cJSON *template_kwargs; /* chat_template_kwargs: further variables */
    const char *chat_template;    /* in place of the model's; NULL: not given */
    const char *reasoning_effort; /* NULL: not given */
    bool add_generation_prompt;
    bool continue_final_message; /* the answer continues the last message */
    bool add_special_tokens;
};

/* Reads these two fields of a body, which exclude each other; add_generation_prompt is true unless
 * it is given, or the final message is continued. */
int chat_prompt_read_end(const cJSON *body, struct chat_prompt_fields *fields,
                         struct api_error *err);

/* Reads chat_template. -1 and *err, 400: the server trusts no request's, it is no text, or longer
 * than a client's may be. */
int chat_prompt_read_template(const struct api_context *context, const cJSON *body,
                              struct chat_prompt_fields *fields, struct api_error *err);

/* The rendered prompt. */
struct chat_rendering {
    struct template_arena *arena; /* owned */
    struct prompt_text text;      /* in the arena */
    bool begins_in_reasoning;     /* it ends inside <think> */
    bool has_reasoned;            /* it has gone past </think>: the answer does not reason again */
};

/* Renders the messages. Control tokens come from the template alone: a client's text is to be
 * encoded as the characters it is written with. -1 and *err: what chat_messages_read refuses; 400
 * when there is no template, it refuses the messages, or a variable is reserved. */
int chat_prompt_render(const struct api_context *context, const struct chat_prompt_fields *fields,
                       struct chat_rendering *out, struct api_error *err);
void chat_prompt_finish(struct chat_rendering *rendering);

/* Renders and counts the tokens, which may be more than the context has. */
int chat_prompt_count(const struct api_context *context, const struct chat_prompt_fields *fields,
                      int64_t *out, struct api_error *err);

struct chat_prompt {
    struct prompt_tokens tokens;            /* owned: free(tokens.ids) */
    bool begins_in_reasoning, has_reasoned; /* as in chat_rendering */
};

/* Renders and encodes. Further errors: 400 context_length_exceeded. */
int chat_prompt_create(const struct api_context *context, const struct chat_prompt_fields *fields,
                       const struct prompt_limits *limits, struct chat_prompt *out,
                       struct api_error *err);

#endif
