/* Reads the types of tools' parameters from their JSON schemas, for the parser of an answer. */
#ifndef QUIRE_SERVER_API_CONVERSATION_TOOL_TYPES_H
#define QUIRE_SERVER_API_CONVERSATION_TOOL_TYPES_H

#include "config/base/byte_buffer.h"
#include "server/api/conversation/conversation.h"
#include "server/output/tool_members.h"

#include <cjson/cJSON.h>

/* Returns STRING if the schema's type, enum, const, or the schemas of its anyOf or oneOf, admit
 * only strings, NULLABLE_STRING if they also admit null, otherwise ANY. */
enum parameter_type tool_types_of_schema(const cJSON *schema);
/* Appends the types of every tool's parameters. */
void tool_types_append(const struct conversation *conversation, struct byte_buffer *types);

#endif
