/* The list-shaped sampling fields of a request: stop, stop_token_ids, logit_bias. */
#ifndef QUIRE_SERVER_SAMPLING_FIELDS_H
#define QUIRE_SERVER_SAMPLING_FIELDS_H

#include "engine/sampling_params.h"
#include "server/api/api_error.h"

#include <cjson/cJSON.h>

/* A value; the stop strings point into the cJSON tree. */
struct sampling_lists {
    int32_t num_stop_strings;
    struct stop_string stop_strings[MAX_STOP_STRINGS];
    int32_t num_stop_tokens;
    int32_t stop_tokens[MAX_STOP_TOKENS];
    int32_t num_biases;
    struct token_bias biases[MAX_LOGIT_BIASES];
};

/* Reads the three fields of object; absent and null ones leave their list empty. -1 and *err (400,
 * param the field or element) for a wrong type, a token that the vocabulary lacks, or a list,
 * string or value beyond its bound. */
int sampling_lists_read(const cJSON *object, int32_t vocab_size, struct sampling_lists *out,
                        struct api_error *err);

#endif
