/* POST /v1/completions. */
#ifndef QUIRE_SERVER_API_COMPLETIONS_COMPLETION_ENDPOINT_H
#define QUIRE_SERVER_API_COMPLETIONS_COMPLETION_ENDPOINT_H

#include "server/api/api_call.h"

api_call_parse completion_endpoint_parse;

#endif
