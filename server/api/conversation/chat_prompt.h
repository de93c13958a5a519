/* Makes the prompt of a chat: the model's template renders the messages, and the tokenizer encodes
 * the result. If the template does not know tools, they are described in the system message, or
 * else in the first message of a user, and called in hermes' format. */
#ifndef QUIRE_SERVER_API_CONVERSATION_CHAT_PROMPT_H
#define QUIRE_SERVER_API_CONVERSATION_CHAT_PROMPT_H

#include "models/chat_template/template_value.h"
#include "server/api/call/api_context.h"
#include "config/json/api_error.h"
#include "server/api/conversation/conversation.h"
#include "server/api/fields/prompt_field.h"

#include <stdbool.h>

/* Memory of one rendering, for values, the template's own work and the text: a few times the
 * largest body. */
#define CHAT_PROMPT_ARENA_BYTES ((size_t)96 << 20)

/* The rendered prompt. */
struct chat_rendering {
    struct template_arena *arena; /* owned */
    struct prompt_text text;      /* in the arena */
    bool begins_in_reasoning;     /* it ends inside <think> */
    bool has_reasoned;            /* it is past </think>: the answer does not reason again */
};

/* Renders the messages. Control tokens come only from the template: a client's text is encoded as
 * the characters that it is written with. On failure returns -1 and fills *err: 400 if there is no
 * template, it refuses the messages, or a variable is reserved. */
int chat_prompt_render(const struct api_context *context, const struct conversation *conversation,
                       struct chat_rendering *out, struct api_error *err);
void chat_prompt_finish(struct chat_rendering *rendering);

/* Renders the messages and counts the tokens, which may exceed the context. */
int chat_prompt_count(const struct api_context *context, const struct conversation *conversation,
                      int64_t *out, struct api_error *err);

struct chat_prompt {
    struct prompt_tokens tokens;            /* owned: free(tokens.ids) */
    bool begins_in_reasoning, has_reasoned; /* as in chat_rendering */
};

/* Renders and encodes the messages. A further error is 400 context_length_exceeded. */
int chat_prompt_create(const struct api_context *context, const struct conversation *conversation,
                       const struct prompt_limits *limits, struct chat_prompt *out,
                       struct api_error *err);

#endif
