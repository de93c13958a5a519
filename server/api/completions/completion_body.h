/* The body of POST /v1/completions as native values, all checked. */
#ifndef QUIRE_SERVER_API_COMPLETIONS_COMPLETION_BODY_H
#define QUIRE_SERVER_API_COMPLETIONS_COMPLETION_BODY_H

#include "server/api/completions/infill_body.h"
#include "server/api/fields/prompt_field.h"
#include "server/api/fields/sampling_body.h"

/* Which API's fields a body has, and which form its answer takes. */
enum completion_form {
    COMPLETION_OPENAI,
    COMPLETION_LLAMA,  /* llama.cpp's /completion (llama_body.h) */
    COMPLETION_INFILL, /* llama.cpp's /infill (infill_body.h) */
    COMPLETION_EITHER, /* of a body to be read: llama.cpp's if it has n_predict, else OpenAI's */
};

/* Absent fields hold their default (sampling_body.h). */
struct completion_body {
    cJSON *json; /* owns every string and the prompts below */
    struct sampling_body sampling;
    struct prompt_list prompts;
    struct prompt_tokens suffix_tokens; /* of the suffix, if there is one */
    enum completion_form form;
    struct infill_body infill;  /* if the body is one of /infill */
    cJSON *response_fields;     /* in llama.cpp's forms (llama_body_take_fields) */
    struct byte_buffer ignored; /* names of unknown fields, comma-separated */

    /* read by the field table */
    int64_t logprobs;   /* -1: none */
    const char *suffix; /* text after the gap that is to be filled; NULL or empty: none */
    bool echo, add_special_tokens, parse_special, timings_per_token, return_progress;
};

/* Parses the body. On failure returns -1 and sets *err, which uses the body's names of fields;
 * nothing to free. */
int completion_body_parse(const struct api_context *context, const char *text, size_t length,
                          enum completion_form form, struct completion_body *out,
                          struct api_error *err);
/* Returns whether the text before a suffix (fim_prompt.h), which may be empty, is to be filled
 * in. */
bool completion_body_has_suffix(const struct completion_body *body);
/* Makes the tokens of a prompt of the body's list, which the caller frees. The tokens of its text
 * are [*out_begin, *out_end). Returns -1 and *err like prompt_read_tokens. */
int completion_body_tokens(const struct api_context *context, const struct completion_body *body,
                           const cJSON *item, const char *path, struct prompt_tokens *out,
                           int32_t *out_begin, int32_t *out_end, struct api_error *err);
void completion_body_finish(struct completion_body *body);

/* Returns what sampling_body_params does, with what echo and logprobs request. */
struct sampling_params completion_body_params(const struct completion_body *body,
                                              const struct api_context *context,
                                              int32_t num_prompt_tokens, uint64_t seed);

/* Returns the table of the endpoint's own fields; static. */
struct json_table completion_body_table(void);

#endif
