/* POST /v1/completions. */
#ifndef QUIRE_SERVER_API_COMPLETIONS_COMPLETION_CALL_H
#define QUIRE_SERVER_API_COMPLETIONS_COMPLETION_CALL_H

#include "server/api/call.h"

call_parse completion_call_parse;

#endif
