/* The body of POST /v1/chat/completions as a conversation, every value checked. */
#ifndef QUIRE_SERVER_API_CHAT_CHAT_BODY_H
#define QUIRE_SERVER_API_CHAT_CHAT_BODY_H

#include "server/api/conversation/conversation.h"

/* The names of fields but for those of the tools, which have two forms. */
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

/* --- Its parts --- */

/* Reads tools, tool_choice and parallel_tool_calls, or functions and function_call, OpenAI's old
 * form of the same; absent and null fields are the defaults. In the old form has_functions is set,
 * the names are those of its fields, and there is one call at most. -1 and *err, 400 with the path
 * as param: also for the two forms in one body. */
int chat_tools_read(const cJSON *body, struct conversation *out, struct api_error *err);

/* Adds the messages to the conversation. An assistant's function_call and the role function,
 * OpenAI's old form of tools, are a call and its result. -1 and *err: 400 with the path as param
 * for a message that is not one, code unsupported_content for content that is not text, and for a
 * member that would change the answer if it was ignored: of other servers' (prefix, tools), sound.
 */
int chat_messages_read(const cJSON *messages, struct conversation *out, struct api_error *err);

/* Appends the names of members that nobody reads ("messages[].foo", "messages[].content[].foo"),
 * each once, comma-separated; empty values request nothing and are not named. Takes whatever a body
 * has as its messages. */
void chat_messages_list_unknown(const cJSON *messages, struct byte_buffer *names);

/* Returns the table of the endpoint's own fields; static. */
struct json_table chat_body_table(void);

#endif
