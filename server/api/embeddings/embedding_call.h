/* POST /v1/embeddings. */
#ifndef QUIRE_SERVER_API_EMBEDDINGS_EMBEDDING_CALL_H
#define QUIRE_SERVER_API_EMBEDDINGS_EMBEDDING_CALL_H

#include "server/api/call.h"

call_parse embedding_call_parse;

#endif
