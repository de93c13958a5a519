/* The body of POST /v1/chat/completions as a conversation, every value checked. */
#ifndef QUIRE_SERVER_API_CHAT_CHAT_BODY_H
#define QUIRE_SERVER_API_CHAT_CHAT_BODY_H

#include "server/api/conversation/conversation.h"

/* The names of fields but for those of the tools, which have two forms (chat_tools.h). */
#define CHAT_BODY_NAMES                                                                            \
    .body = &openai_names, .messages = "messages", .continue_final = "continue_final_message",     \
    .wants_logprobs = "logprobs: true"

/* *out owns the body's tree; conversation_finish. On failure -1 and *err, nothing to free. */
int chat_body_parse(const struct api_context *context, const char *text, size_t length,
                    struct conversation *out, struct api_error *err);

/* Reads what the prompt is made of from a body that has no more of a chat's fields than these:
 * tools and their choice, chat_template and its like, messages. Borrows the body; its
 * reasoning_effort and add_special_tokens are the caller's to set. On failure -1 and *err, nothing
 * to free. */
int chat_body_read_prompt(const struct api_context *context, const cJSON *body,
                          struct conversation *out, struct api_error *err);

/* Returns the table of the endpoint's own fields; static. */
struct json_table chat_body_table(void);

#endif
