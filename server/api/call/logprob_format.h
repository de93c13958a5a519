/* Writes the logprobs of an event's tokens as items of a JSON array, in the format of chats and in
 * that of vLLM's prompt_logprobs. The legacy format of completions is a logprob_list. */
#ifndef QUIRE_SERVER_API_CALL_LOGPROB_FORMAT_H
#define QUIRE_SERVER_API_CALL_LOGPROB_FORMAT_H

#include "config/base/byte_buffer.h"
#include "engine/request/token_stream.h"
#include "models/tokenizer/tokenizer.h"

#include <stdbool.h>
#include <stdint.h>

/* As num_top: the token itself, then all tokens that the event lists for it. */
#define LOGPROBS_LISTED (-1)

/* How a token is named. */
enum logprob_names {
    LOGPROB_NAMES,         /* "token": its text */
    LOGPROB_IDS_AS_NAMES,  /* vLLM's: "token": "token_id:7" */
    LOGPROB_NAMES_AND_IDS, /* llama.cpp's: "id" too */
};

/* Returns the token's text; empty for an id beyond the vocabulary. */
struct text logprob_format_piece(const struct tokenizer *tokenizer, int32_t token);

/* Appends {"token","logprob","bytes","top_logprobs":[{"token","logprob","bytes"}]}, each with at
 * most num_top of the most probable tokens. A token that is not whole UTF-8 characters is shown
 * with U+FFFD; `bytes` has it exactly. */
void logprob_format_chat(const struct tokenizer *tokenizer, const struct token_event *event,
                         int32_t num_top, enum logprob_names names, struct byte_buffer *items);

/* Appends null for the prompt's first token, else an object
 * {"TOKEN ID": {"logprob":..., "rank":..., "decoded_token":...}} of the token itself and at most
 * num_top of the most probable ones. */
void logprob_format_prompt(const struct tokenizer *tokenizer, const struct token_event *event,
                           int32_t num_top, struct byte_buffer *items);

#endif
