/* POST /v1/chat/completions. */
#ifndef QUIRE_SERVER_API_CHAT_CHAT_ENDPOINT_H
#define QUIRE_SERVER_API_CHAT_CHAT_ENDPOINT_H

#include "server/api/api_call.h"

api_call_parse chat_endpoint_parse;

#endif
