/* vLLM's prompt_logprobs: for each token of the prompt null (the first) or an object
 * {"TOKEN ID": {"logprob":..., "rank":..., "decoded_token":...}} of the token itself and the most
 * probable ones. */
#ifndef QUIRE_SERVER_API_PROMPT_LOGPROBS_H
#define QUIRE_SERVER_API_PROMPT_LOGPROBS_H

#include "engine/token_stream.h"
#include "models/tokenizer/tokenizer.h"
#include "server/byte_buffer.h"

#include <stdint.h>

/* Appends an event's entries, comma-separated, with at most num_top of the most probable ones. */
void prompt_logprobs_add(const struct tokenizer *tokenizer, const struct token_event *event,
                         int32_t num_top, struct byte_buffer *entries);

#endif
