/* The small endpoints' bodies, native values to JSON and back. Each function is pure and may run on
 * any thread. */
#ifndef QUIRE_SERVER_API_MODELS_API_RESPONSE_H
#define QUIRE_SERVER_API_MODELS_API_RESPONSE_H

#include "server/api/api_error.h"
#include "server/byte_buffer.h"
#include "server/api/api_context.h"
#include "server/json/json_field.h"

/* GET /v1/models and /v1/models/{id}; the latter -1 with 404 for an unknown id. */
void api_format_models(const struct api_context *context, struct byte_buffer *out);
int api_format_model(const struct api_context *context, const char *id, struct byte_buffer *out,
                     struct api_error *err);

/* POST /tokenize and /detokenize in vLLM's shape: body in, body out. /tokenize takes a prompt, or
 * the messages of a chat with what else makes its prompt. `ignored` takes the names of unknown
 * fields, as json_fields_list_unknown writes them. */
int api_tokenize(const struct api_context *context, const char *body, size_t length,
                 struct byte_buffer *out, struct byte_buffer *ignored, struct api_error *err);
int api_detokenize(const struct api_context *context, const char *body, size_t length,
                   struct byte_buffer *out, struct byte_buffer *ignored, struct api_error *err);

/* The table of /tokenize's fields; static. */
struct json_table api_tokenize_table(void);

#endif
