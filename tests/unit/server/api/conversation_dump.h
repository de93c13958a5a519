/* A conversation as a line of text for each message, each tool, and what else is not the default.
 */
#ifndef QUIRE_TESTS_UNIT_SERVER_API_CONVERSATION_DUMP_H
#define QUIRE_TESTS_UNIT_SERVER_API_CONVERSATION_DUMP_H

#include "server/api/conversation/conversation.h"

/* Appends them, with a NUL. Messages: ROLE[PART|PART], or ROLE null; (REASONING);
 * NAME(ARGUMENTS)#ID of a call, NAME<INPUT>#ID of a custom tool's; #ID of a result. */
void conversation_dump(const struct conversation *conversation, struct byte_buffer *out);

#endif
