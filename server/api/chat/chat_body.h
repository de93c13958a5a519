/* The body of POST /v1/chat/completions as a conversation, every value checked. */
#ifndef QUIRE_SERVER_API_CHAT_CHAT_BODY_H
#define QUIRE_SERVER_API_CHAT_CHAT_BODY_H

#include "server/api/conversation/conversation.h"

/* The names of the fields, except those of the tools, which have two forms. */
#define CHAT_BODY_NAMES                                                                            \
    .body = &openai_names, .messages = "messages", .continue_final = "continue_final_message",     \
    .wants_logprobs = "logprobs: true"

/* Parses the body. *out owns the body's tree; free it with conversation_finish. On failure returns
 * -1 and sets *err; nothing to free. */
int chat_body_parse(const struct api_context *context, const char *text, size_t length,
                    struct conversation *out, struct api_error *err);

/* Reads what the prompt is made of from a body that has no other fields of a chat than these: tools
 * and their choice, chat_template and related fields, messages. Borrows the body. The caller sets
 * reasoning_effort and add_special_tokens. On failure returns -1 and sets *err; nothing to free. */
int chat_body_read_prompt(const struct api_context *context, const cJSON *body,
                          struct conversation *out, struct api_error *err);

/* --- Its parts --- */

/* Reads tools, tool_choice and parallel_tool_calls; or functions and function_call, OpenAI's old
 * form of the same. Absent and null fields get the defaults. The old form sets has_functions and
 * the names of its fields, and allows at most one tool call. Returns -1 and *err, 400 with the path
 * as param, on failure, and for a body with both forms. */
int chat_tools_read(const cJSON *body, struct conversation *out, struct api_error *err);

/* Adds the messages to the conversation. An assistant's function_call and the role function,
 * OpenAI's old form of tools, become a tool call and its result. Returns -1 and *err, 400 with the
 * path as param, for a message that is not valid. The code is unsupported_content for content that
 * is not text, and for a member that would change the answer if it was ignored: those of other
 * servers (prefix, tools), and audio. */
int chat_messages_read(const cJSON *messages, struct conversation *out, struct api_error *err);

/* Appends the names of members that are not read ("messages[].foo", "messages[].content[].foo"),
 * each once, comma-separated. Empty values request nothing and are not listed. Accepts any value as
 * a body's messages. */
void chat_messages_list_unknown(const cJSON *messages, struct byte_buffer *names);

/* Returns the table of the endpoint's own fields; static. */
struct json_table chat_body_table(void);

#endif
