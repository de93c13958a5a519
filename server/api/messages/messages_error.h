/* Errors in the shape of Anthropic's API:
 * {"type":"error","error":{"type","message","details":{"error_code"}},"request_id"}. The code is
 * that of api_error; without one there are no details. */
#ifndef QUIRE_SERVER_API_MESSAGES_MESSAGES_ERROR_H
#define QUIRE_SERVER_API_MESSAGES_MESSAGES_ERROR_H

#include "config/json/api_error.h"

/* Returns the type that goes with a status. */
const char *messages_error_type(int status);
/* Appends the object; request_id NULL leaves that out: a stream's event, whose header has it. */
void messages_error_format(const struct api_error *err, const char *request_id,
                           struct byte_buffer *out);

#endif
