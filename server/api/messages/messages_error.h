/* Errors in the form of Anthropic's API:
 * {"type":"error","error":{"type","message","details":{"error_code"}},"request_id"}. The code is
 * that of api_error; without a code there are no details. */
#ifndef QUIRE_SERVER_API_MESSAGES_MESSAGES_ERROR_H
#define QUIRE_SERVER_API_MESSAGES_MESSAGES_ERROR_H

#include "config/json/api_error.h"

/* Returns the type for a status. */
const char *messages_error_type(int status);
/* Appends the object. If request_id is NULL, it is left out: in a stream's event, because the
 * header has it. */
void messages_error_format(const struct api_error *err, const char *request_id,
                           struct byte_buffer *out);

#endif
