/* The OpenAPI 3.1 description of all routes, as GET /openapi.json answers it.
 *
 * What is written by hand (openapi.json) says nothing of the kind and the bounds of the fields that
 * the endpoints read by a table (json_field.h): these are filled in from the tables themselves, so
 * that the two cannot differ. */
#ifndef QUIRE_SERVER_OPENAPI_H
#define QUIRE_SERVER_OPENAPI_H

#include "server/byte_buffer.h"

/* Appends the description. -1 when memory is short; *out may then hold a part of it. */
int openapi_write(struct byte_buffer *out);

#endif
