/* The body of POST /v1/responses as a conversation. */
#ifndef QUIRE_SERVER_API_RESPONSES_RESPONSES_BODY_H
#define QUIRE_SERVER_API_RESPONSES_RESPONSES_BODY_H

#include "server/api/call/api_context.h"
#include "server/api/conversation/conversation.h"
#include "server/api/responses/responses_conversation.h"

#include <cjson/cJSON.h>

/* Reads the body, after the items that it continues. What needs other stored objects (conversation,
 * prompt) or another kind of input than text is refused. On success *out refers into body and
 * `continued`, which must outlive it; conversation_finish. On failure -1 and *err, nothing to
 * free. */
int responses_body_read(const struct api_context *context, const cJSON *body,
                        const struct responses_conversation *continued, struct conversation *out,
                        struct api_error *err);

/* Appends what the answer repeats of its request, as members of the answer's object: instructions,
 * tools, tool_choice, text, temperature, ... with what was taken where nothing was given. */
void responses_body_echo(const cJSON *body, bool is_kept, float temperature, float top_p,
                         struct byte_buffer *out);

#endif
