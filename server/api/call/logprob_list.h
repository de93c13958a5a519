/* The logprobs object of legacy completions, which grows token by token:
 * {"text_offset":[],"token_logprobs":[],"tokens":[],"top_logprobs":[{token: logprob}]}. */
#ifndef QUIRE_SERVER_API_CALL_LOGPROB_LIST_H
#define QUIRE_SERVER_API_CALL_LOGPROB_LIST_H

#include "config/base/byte_buffer.h"
#include "engine/request/token_stream.h"
#include "models/tokenizer/tokenizer.h"

#include <stdbool.h>
#include <stdint.h>

/* A zeroed struct is an empty list. The four buffers hold comma-separated JSON values. */
struct logprob_list {
    struct byte_buffer text_offset, token_logprobs, tokens, top_logprobs;
    int64_t offset; /* characters before the next token; survives logprob_list_clear */
    /* In top_logprobs the token itself comes first, as in vLLM's for a prompt; otherwise last. */
    bool begins_with_own;
    bool shows_ids; /* tokens are shown as vLLM's "token_id:7" */
};

/* Adds one token. Its display form, unless ids are shown, is its text, or "bytes:\xe2\x82" when it
 * is not whole UTF-8 characters (OpenAI's form). A NaN logprob (the first token of a prompt) is
 * written as null, also in top_logprobs. Otherwise top_logprobs gets the num_top entries of top and
 * the token itself; if several have the same display form, the most probable one is kept. in_text:
 * whether the token's characters are part of the text that offsets count. */
void logprob_list_add(struct logprob_list *list, const struct tokenizer *tokenizer,
                      const struct token_record *record, const struct top_logprob *top,
                      bool in_text);
/* Adds all of other, which must have begun at this list's offset. */
void logprob_list_append(struct logprob_list *list, const struct logprob_list *other);
void logprob_list_format(const struct logprob_list *list, struct byte_buffer *out);
bool logprob_list_is_empty(const struct logprob_list *list);
bool logprob_list_has_failed(const struct logprob_list *list); /* memory was short */
size_t logprob_list_bytes(const struct logprob_list *list);    /* of memory */
void logprob_list_clear(struct logprob_list *list);            /* keeps memory and offset */
void logprob_list_finish(struct logprob_list *list);

#endif
