/* The body of llama.cpp's POST /completion (tools/server/README.md), and what /infill has in common
 * with it, as that of a completion: n_predict is its max_tokens, n_probs its logprobs, n_cmpl its
 * n, repeat_penalty its repetition_penalty, return_tokens its return_token_ids. */
#ifndef QUIRE_SERVER_API_COMPLETIONS_LLAMA_BODY_H
#define QUIRE_SERVER_API_COMPLETIONS_LLAMA_BODY_H

#include "server/api/call/api_context.h"
#include "server/api/call/body_names.h"

#include "config/base/byte_buffer.h"

#include <cjson/cJSON.h>

/* n_predict of -1 and n_probs of 0 count as absent. Those of /infill have input_prefix for the
 * prompt, and input_suffix for the suffix, too. */
extern const struct body_names llama_body_names, llama_body_infill_names;

/* Makes the values of the body what those of a completion are, and appends the names of members
 * that are dropped to `ignored`. A seed of -1 or 4294967295 and empty stop strings are left out;
 * lists and texts of logit_bias become an object of ids. -1 and *err: 400, param the field. */
int llama_body_take(const struct api_context *context, cJSON *json, struct byte_buffer *ignored,
                    struct api_error *err);
/* Takes over response_fields, which names the members an answer is to have (llama_format_select);
 * NULL: it has all. -1 and *err: 400, param the field. */
int llama_body_take_fields(cJSON *json, cJSON **out, struct api_error *err);
/* Makes a prompt of ids and texts one of ids, and {"prompt_string": text} its text. -1 and *err. */
int llama_body_take_prompt(const struct api_context *context, cJSON *json, struct api_error *err);

/* Takes a member out of the body, which the caller frees; NULL: it is not given. */
cJSON *llama_body_detach(cJSON *json, const char *name);

#endif
