/* The body of POST /v1/completions as native values, every one checked. */
#ifndef QUIRE_SERVER_API_COMPLETIONS_COMPLETION_BODY_H
#define QUIRE_SERVER_API_COMPLETIONS_COMPLETION_BODY_H

#include "server/api/completions/infill_body.h"
#include "server/api/fields/prompt_field.h"
#include "server/api/fields/sampling_body.h"

/* Whose fields a body has, and its answer. */
enum completion_form {
    COMPLETION_OPENAI,
    COMPLETION_LLAMA,  /* llama.cpp's /completion (llama_body.h) */
    COMPLETION_INFILL, /* llama.cpp's /infill (infill_body.h) */
    COMPLETION_EITHER, /* of a body that is read: llama.cpp's where it has n_predict, or OpenAI's */
};

/* Absent fields hold their default (sampling_body.h). */
struct completion_body {
    cJSON *json; /* owns every string and the prompts below */
    struct sampling_body sampling;
    struct prompt_list prompts;
    struct prompt_tokens suffix_tokens; /* of the suffix, where there is one */
    enum completion_form form;
    struct infill_body infill;  /* of a body of /infill */
    cJSON *response_fields;     /* of llama.cpp's forms (llama_body_take_fields) */
    struct byte_buffer ignored; /* names of unknown fields, comma-separated */

    /* read by the field table */
    int64_t logprobs;   /* -1: none */
    const char *suffix; /* what stands behind the gap that is to be filled; NULL or empty: none */
    bool echo, add_special_tokens, parse_special, timings_per_token, return_progress;
};

/* On failure -1 and *err, which names the fields as the body does; nothing to free. */
int completion_body_parse(const struct api_context *context, const char *text, size_t length,
                          enum completion_form form, struct completion_body *out,
                          struct api_error *err);
/* Returns whether the text is to be filled in before a suffix (fim_prompt.h), or one that is empty.
 */
bool completion_body_has_suffix(const struct completion_body *body);
/* Makes the tokens of a prompt of its list, which the caller frees; those of its text are
 * [*out_begin, *out_end). -1 and *err: as prompt_read_tokens. */
int completion_body_tokens(const struct api_context *context, const struct completion_body *body,
                           const cJSON *item, const char *path, struct prompt_tokens *out,
                           int32_t *out_begin, int32_t *out_end, struct api_error *err);
void completion_body_finish(struct completion_body *body);

/* sampling_body_params, with what echo and logprobs request. */
struct sampling_params completion_body_params(const struct completion_body *body,
                                              const struct api_context *context,
                                              int32_t num_prompt_tokens, uint64_t seed);

/* Returns the table of the endpoint's own fields; static. */
struct json_table completion_body_table(void);

#endif
