/* The JSON of a text_completion object, whole or as a stream's chunk: both have the same shape. */
#ifndef QUIRE_SERVER_API_COMPLETIONS_COMPLETION_FORMAT_H
#define QUIRE_SERVER_API_COMPLETIONS_COMPLETION_FORMAT_H

#include "server/api/api_call_type.h"
#include "server/api/logprob_list.h"

#include <stdbool.h>
#include <stdint.h>

/* A choice to write; what is NULL is written as null, but for the prompt's logprobs in a chunk,
 * which are left out then: the keys are vLLM's. */
struct completion_choice {
    int32_t index;
    bool is_chunk;
    const struct byte_buffer *text;
    const struct logprob_list *logprobs;
    const struct api_call_finish *finish;
    const struct byte_buffer *prompt_logprobs;  /* entries, comma-separated */
    const struct byte_buffer *token_ids;        /* the same */
    const struct byte_buffer *prompt_token_ids; /* the same */
};

/* Writes {"id":...,"choices":[ */
void completion_format_begin(const struct api_call_head *head, struct byte_buffer *out);
/* Writes one choice, an item of the array. */
void completion_format_choice(const struct completion_choice *choice, struct byte_buffer *out);
/* Writes ],"system_fingerprint":...} */
void completion_format_end(const struct api_call_head *head, struct byte_buffer *out);
/* Writes the same with "usage"; NULL: null. */
void completion_format_end_usage(const struct api_call_head *head,
                                 const struct api_call_usage *usage, struct byte_buffer *out);

#endif
