/* The body of POST /v1/responses as that of a chat: the same request in the words of
 * /v1/chat/completions, so that everything behind it is shared. */
#ifndef QUIRE_SERVER_API_RESPONSES_RESPONSES_BODY_H
#define QUIRE_SERVER_API_RESPONSES_RESPONSES_BODY_H

#include "server/api/call/api_context.h"
#include "server/api/chat/chat_body.h"
#include "server/api/responses/responses_conversation.h"

#include <cjson/cJSON.h>

/* Reads the body as a chat's, behind what it continues; the errors name this body's fields. On
 * success *out refers into body and conversation, which must outlive it. On failure -1 and *err,
 * nothing to free. */
int responses_body_read(const struct api_context *context, const cJSON *body,
                        const struct responses_conversation *conversation, struct chat_body *out,
                        struct api_error *err);
/* Renames an error of a chat that was made of the body. */
void responses_body_rename_error(const cJSON *body, struct api_error *err);

/* The part of it that makes the tree. instructions, the conversation's items and input become
 * messages; tools, tool_choice, text.format, reasoning.effort and max_output_tokens get the chat's
 * names and shapes; fields the chat does not know either are passed on, so that they are named as
 * ignored. What needs other stored objects (conversation, prompt) or another kind of input than
 * text is refused.
 *
 * The result refers into both, which must outlive it; cJSON_Delete frees it. NULL and *err on
 * failure: 400 with the path in this body as param, or 503 when memory is short. */
cJSON *responses_body_to_chat(const cJSON *body, const struct responses_conversation *conversation,
                              struct api_error *err);

/* The part of it in responses_input.c: appends what `input` holds, a text or a list of items, to
 * `messages` (an array); a list without items that count is an empty text. Items: messages with
 * text; function_call, which joins the assistant's message before it; function_call_output;
 * reasoning, which goes with the assistant's next words. Those of tools that are run elsewhere are
 * left out. The messages refer into input. Returns -1 and *err on failure. */
int responses_input_read(const cJSON *input, cJSON *messages, struct api_error *err);
/* Returns -1 and *err where such a list has more items than are allowed. */
int responses_input_check_size(const cJSON *input, struct api_error *err);

/* Appends what the answer repeats of its request, as members of the answer's object: instructions,
 * tools, tool_choice, text, temperature, ... with what was taken where nothing was given. */
void responses_body_echo(const cJSON *body, bool is_kept, float temperature, float top_p,
                         struct byte_buffer *out);

#endif
