/* POST /v1/responses: a chat in the words of OpenAI's Responses API. Nothing is stored. */
#ifndef QUIRE_SERVER_API_RESPONSES_RESPONSES_CALL_H
#define QUIRE_SERVER_API_RESPONSES_RESPONSES_CALL_H

#include "server/api/call.h"

call_parse responses_call_parse;

#endif
