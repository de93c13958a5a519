/* The body of POST /v1/completions as native values, every one checked. */
#ifndef QUIRE_SERVER_COMPLETION_REQUEST_H
#define QUIRE_SERVER_COMPLETION_REQUEST_H

#include "server/json/json_field.h"
#include "server/api/prompt_field.h"
#include "server/api/sampling_fields.h"

#define COMPLETION_NO_SEED INT64_MIN

/* Absent fields hold what the model's makers recommend, else OpenAI's default, or vLLM's for its
 * extensions. */
struct completion_request {
    cJSON *json; /* owns every string and the prompts below */
    struct prompt_list prompts;
    struct sampling_lists lists;
    struct byte_buffer ignored; /* names of unknown fields, comma-separated */

    /* read by the field table */
    const char *model; /* NULL: not given */
    const char *user;
    int64_t n;
    int64_t best_of; /* 0: not given */
    int64_t max_tokens;
    int64_t min_tokens;
    int64_t top_k;
    int64_t logprobs; /* -1: none */
    int64_t seed;     /* COMPLETION_NO_SEED: not given */
    int64_t priority;
    double temperature, top_p, min_p;
    double presence_penalty, frequency_penalty, repetition_penalty;
    bool echo, stream, include_usage;
    bool ignore_eos, include_stop_str_in_output, skip_special_tokens, add_special_tokens;
};

/* On failure -1 and *err, nothing to free. */
int completion_request_parse(const struct api_context *context, const char *body, size_t length,
                             struct completion_request *out, struct api_error *err);
void completion_request_finish(struct completion_request *request);

/* The engine's parameters for a prompt of that many tokens; max_tokens is cut to what the context
 * has left. The arrays point into request. */
struct sampling_params completion_request_params(const struct completion_request *request,
                                                 const struct api_context *context,
                                                 int32_t num_prompt_tokens, uint64_t seed);

/* The table of known fields; static. */
const struct json_field *completion_request_fields(int *out_count);

#endif
