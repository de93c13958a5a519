/* POST /v1/responses: a chat in the words of OpenAI's Responses API. Nothing is stored. */
#ifndef QUIRE_SERVER_API_RESPONSES_RESPONSES_ENDPOINT_H
#define QUIRE_SERVER_API_RESPONSES_RESPONSES_ENDPOINT_H

#include "server/api/api_call.h"

api_call_parse responses_endpoint_parse;

#endif
