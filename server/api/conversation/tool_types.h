/* The types of tools' parameters, read from their JSON schemas for the parser of an answer. */
#ifndef QUIRE_SERVER_API_CONVERSATION_TOOL_TYPES_H
#define QUIRE_SERVER_API_CONVERSATION_TOOL_TYPES_H

#include "config/base/byte_buffer.h"
#include "server/api/conversation/conversation.h"
#include "server/output/tool_members.h"

#include <cjson/cJSON.h>

/* Returns STRING where the schema's type, enum, const, or the schemas of its anyOf or oneOf, admit
 * strings alone, NULLABLE_STRING with null besides, else ANY. */
enum parameter_type tool_types_of_schema(const cJSON *schema);
/* Appends those of every tool. */
void tool_types_append(const struct conversation *conversation, struct byte_buffer *types);

#endif
