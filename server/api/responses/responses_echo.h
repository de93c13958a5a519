/* What an answer of /v1/responses repeats of its request. */
#ifndef QUIRE_SERVER_API_RESPONSES_RESPONSES_ECHO_H
#define QUIRE_SERVER_API_RESPONSES_RESPONSES_ECHO_H

#include "server/byte_buffer.h"

#include <cjson/cJSON.h>

/* Appends it as members of the answer's object: instructions, tools,
 * tool_choice, text, temperature, ... with what was taken where nothing was given. */
void responses_echo_write(const cJSON *body, double temperature, double top_p,
                          struct byte_buffer *out);

#endif
