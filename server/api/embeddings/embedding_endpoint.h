/* POST /v1/embeddings. */
#ifndef QUIRE_SERVER_API_EMBEDDINGS_EMBEDDING_ENDPOINT_H
#define QUIRE_SERVER_API_EMBEDDINGS_EMBEDDING_ENDPOINT_H

#include "server/api/api_call.h"

api_call_parse embedding_endpoint_parse;

#endif
