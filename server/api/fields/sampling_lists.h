/* Reads the sampling fields of a request that are lists: stop, stop_token_ids, logit_bias,
 * allowed_token_ids, bad_words, logprob_token_ids, dry_sequence_breakers. */
#ifndef QUIRE_SERVER_API_FIELDS_SAMPLING_LISTS_H
#define QUIRE_SERVER_API_FIELDS_SAMPLING_LISTS_H

#include "engine/request/sampling_params.h"
#include "models/tokenizer/tokenizer.h"
#include "server/api/call/body_names.h"
#include "config/json/api_error.h"

#include <cjson/cJSON.h>

#define MAX_BAD_WORDS (MAX_BAD_RUNS / 2)
#define MAX_BAD_WORD_BYTES 256

/* The stop strings and the breakers point into the cJSON tree, or are static. */
struct sampling_lists {
    int32_t num_stop_strings;
    struct stop_string stop_strings[MAX_STOP_STRINGS];
    int32_t num_dry_breakers;
    struct stop_string dry_breakers[MAX_DRY_BREAKERS]; /* llama.cpp's if none are given */
    int32_t num_stop_tokens;
    int32_t stop_tokens[MAX_STOP_TOKENS];
    int32_t num_biases;
    struct token_bias biases[MAX_LOGIT_BIASES];
    int32_t num_allowed_tokens;
    int32_t *allowed_tokens; /* owned */
    /* Each word as it is encoded at the start of a text, and after a space. */
    int32_t num_bad_runs;
    struct token_run bad_runs[MAX_BAD_RUNS]; /* in bad_tokens */
    int32_t *bad_tokens;                     /* owned */
    int32_t num_logprob_tokens;
    int32_t logprob_tokens[MAX_LOGPROB_TOKENS]; /* distinct */
};

/* Reads the fields of object into a zeroed *out; absent and null ones leave their list empty.
 * Returns -1 and fills *err (400, param is the field or element) for a wrong type, a token that is
 * not in the vocabulary, or a list, string or value beyond its bound; then there is nothing to
 * free. */
int sampling_lists_read(const cJSON *object, const struct body_names *names,
                        const struct tokenizer *tokenizer, struct sampling_lists *out,
                        struct api_error *err);
void sampling_lists_finish(struct sampling_lists *lists); /* accepts a zeroed one */

#endif
