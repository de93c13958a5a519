/* The JSON that the answers of Ollama's API have in common. */
#ifndef QUIRE_SERVER_API_OLLAMA_OLLAMA_FORMAT_H
#define QUIRE_SERVER_API_OLLAMA_OLLAMA_FORMAT_H

#include "config/json/api_error.h"
#include "server/api/call/api_call_type.h"

#define OLLAMA_API_VERSION "0.12.11" /* of which this is the API */

/* Appends {"error": message}. request_id is not part of it. */
void ollama_format_error(const struct api_error *err, const char *request_id,
                         struct byte_buffer *out);
/* Writes a member that is a time since 1970, in RFC 3339's form. */
void ollama_format_time(const char *name, int64_t seconds, int64_t nanoseconds,
                        struct byte_buffer *out);
/* Writes the members that say how many tokens a call had and how long they took, in nanoseconds.
 * The prompt is counted with what was cached; its time is that from the first step to the first
 * token. */
void ollama_format_counts(const struct api_call *call, struct byte_buffer *out);

#endif
