/* GET /tokenizer_info in vLLM's shape: what a tokenizer_config.json says, for programs that have no
 * tokenizer of their own and use /tokenize and /detokenize. */
#ifndef QUIRE_SERVER_API_MODELS_TOKENIZER_INFO_H
#define QUIRE_SERVER_API_MODELS_TOKENIZER_INFO_H

#include "server/api/api_context.h"
#include "server/byte_buffer.h"

/* Appends the JSON object. A model of any format has all keys; bos_token, eos_token and
 * chat_template are null where it has none. */
void tokenizer_info_format(const struct api_context *context, struct byte_buffer *out);

#endif
