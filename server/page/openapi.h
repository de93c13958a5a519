/* The OpenAPI 3.1 description of all routes, as GET /openapi.json answers it.
 *
 * The handwritten part (openapi.json) does not contain the types and bounds of fields that the
 * endpoints read by a table (json_field.h). They are filled in from the tables themselves and from
 * the limits that options set (request_limits.h), so that they cannot differ. */
#ifndef QUIRE_SERVER_PAGE_OPENAPI_H
#define QUIRE_SERVER_PAGE_OPENAPI_H

#include "config/base/byte_buffer.h"
#include "server/api/call/api_context.h"

/* Appends the description. -1 when memory is short; *out may then hold a part of it. */
int openapi_write(const struct api_context *context, struct byte_buffer *out);

#endif
