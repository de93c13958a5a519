/* The input of POST /v1/responses: a text or a list of items, as messages of a chat. */
#ifndef QUIRE_SERVER_API_RESPONSES_RESPONSES_INPUT_H
#define QUIRE_SERVER_API_RESPONSES_RESPONSES_INPUT_H

#include "server/api/api_error.h"

#include <cjson/cJSON.h>

/* Appends to `messages` (an array). Items: messages with text; function_call, which joins the
 * assistant's message before it; function_call_output; reasoning, which goes with the assistant's
 * next words. The messages refer into input. -1 and *err on failure. */
int responses_input_read(const cJSON *input, cJSON *messages, struct api_error *err);

#endif
