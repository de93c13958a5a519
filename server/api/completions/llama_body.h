/* The body of llama.cpp's POST /completion (tools/server/README.md), and what /infill has in common
 * with it, as the body of a completion: n_predict becomes its max_tokens, n_probs its logprobs,
 * n_cmpl its n, repeat_penalty its repetition_penalty, return_tokens its return_token_ids. */
#ifndef QUIRE_SERVER_API_COMPLETIONS_LLAMA_BODY_H
#define QUIRE_SERVER_API_COMPLETIONS_LLAMA_BODY_H

#include "server/api/call/api_context.h"
#include "server/api/call/body_names.h"

#include "config/base/byte_buffer.h"

#include <cjson/cJSON.h>

/* The names in these bodies. n_predict of -1 and n_probs of 0 count as absent. /infill's names
 * include input_prefix for the prompt and input_suffix for the suffix. */
extern const struct body_names llama_body_names, llama_body_infill_names;

/* Converts the values of the body to those of a completion, and appends the names of dropped
 * members to `ignored`. A seed of -1 or 4294967295 and empty stop strings are left out; lists and
 * texts of logit_bias become an object of ids. Returns -1 and *err, 400 with the field as param, on
 * failure. */
int llama_body_take(const struct api_context *context, cJSON *json, struct byte_buffer *ignored,
                    struct api_error *err);
/* Takes ownership of response_fields, which names the members that an answer should have
 * (llama_format_select); NULL: all of them. Returns -1 and *err, 400 with the field as param, on
 * failure. */
int llama_body_take_fields(cJSON *json, cJSON **out, struct api_error *err);
/* Converts a prompt of ids and texts to one of ids, and {"prompt_string": text} to its text.
 * Returns -1 and *err on failure. */
int llama_body_take_prompt(const struct api_context *context, cJSON *json, struct api_error *err);

/* Removes a member from the body and returns it; the caller frees it. NULL: not given. */
cJSON *llama_body_detach(cJSON *json, const char *name);

#endif
