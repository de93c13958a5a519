/* The logprobs of a chat's choice in OpenAI's shape: entries
 * {"token","logprob","bytes","top_logprobs":[{"token","logprob","bytes"}]}. */
#ifndef QUIRE_SERVER_API_CHAT_CHAT_LOGPROBS_H
#define QUIRE_SERVER_API_CHAT_CHAT_LOGPROBS_H

#include "engine/token_stream.h"
#include "models/tokenizer/tokenizer.h"
#include "server/byte_buffer.h"

#include <stdbool.h>
#include <stdint.h>

/* As num_top: the token itself, then all that the event lists for it. */
#define CHAT_LOGPROBS_LISTED (-1)

/* Appends an event's entries, comma-separated, each with at most num_top of the most probable
 * tokens; shows_ids: as vLLM's "token_id:7". A token that is not whole UTF-8 characters is shown
 * with U+FFFD; `bytes` has it exactly.
 */
void chat_logprobs_add(const struct tokenizer *tokenizer, const struct token_event *event,
                       int32_t num_top, bool shows_ids, struct byte_buffer *entries);

#endif
