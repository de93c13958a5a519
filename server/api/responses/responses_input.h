/* The input of POST /v1/responses: a text or a list of items, as messages of a conversation. */
#ifndef QUIRE_SERVER_API_RESPONSES_RESPONSES_INPUT_H
#define QUIRE_SERVER_API_RESPONSES_RESPONSES_INPUT_H

#include "server/api/conversation/conversation.h"

/* Adds the messages. A call joins the assistant's message before it; reasoning goes to the message
 * after it. Items of tools that are not run here are left out. -1 and *err. */
int responses_input_read(const cJSON *input, struct conversation *out, struct api_error *err);
/* Returns -1 and *err when the input has more items than are allowed. */
int responses_input_check_size(const cJSON *input, struct api_error *err);

#endif
