/* POST /v1/chat/completions. */
#ifndef QUIRE_SERVER_API_CHAT_CHAT_CALL_H
#define QUIRE_SERVER_API_CHAT_CHAT_CALL_H

#include "server/api/call.h"

call_parse chat_call_parse;

#endif
