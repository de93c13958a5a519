/* A conversation of messages and tools alone, as the body of a chat has them. */
#ifndef QUIRE_TESTS_UNIT_SERVER_API_CONVERSATION_FIXTURE_H
#define QUIRE_TESTS_UNIT_SERVER_API_CONVERSATION_FIXTURE_H

#include "server/api/conversation/conversation.h"

/* Reads the tools of a body, and its messages where it has that member; the test fails where it is
 * not JSON. *out owns the body: conversation_finish. On failure -1 and *err, nothing to free. */
int conversation_fixture_read(const char *body, struct conversation *out, struct api_error *err);

#endif
