/* The JSON of a text_completion object, whole or as a stream's chunk: both have the same shape. */
#ifndef QUIRE_SERVER_COMPLETION_FORMAT_H
#define QUIRE_SERVER_COMPLETION_FORMAT_H

#include "engine/token_stream.h"
#include "server/byte_buffer.h"
#include "server/api/logprob_list.h"

#include <stdint.h>

/* The same in every chunk of one call. */
struct completion_head {
    char id[40]; /* "cmpl-" and hexadecimal digits */
    int64_t created;
    const char *model;
    const char *system_fingerprint; /* NULL: null */
};

struct completion_usage {
    int64_t prompt_tokens, completion_tokens, cached_tokens;
};

/* Why a choice ended; reason FINISH_NONE: it has not. */
struct completion_finish {
    enum finish_reason reason; /* NONE, STOP or LENGTH: clients type the field as OpenAI's enum */
    int32_t stop_token;        /* -1: none */
    struct text stop_string;   /* data NULL: none */
};

/* {"id":...,"choices":[ */
void completion_format_begin(const struct completion_head *head, struct byte_buffer *out);
/* One choice, without a comma. logprobs NULL: null. */
void completion_format_choice(int32_t index, const struct byte_buffer *text,
                              const struct logprob_list *logprobs,
                              const struct completion_finish *finish, struct byte_buffer *out);
/* ],"system_fingerprint":...,"usage":...} */
void completion_format_end(const struct completion_head *head, const struct completion_usage *usage,
                           struct byte_buffer *out);
/* The same with usage null, or without usage at all. */
void completion_format_end_null_usage(const struct completion_head *head, struct byte_buffer *out);
void completion_format_end_no_usage(const struct completion_head *head, struct byte_buffer *out);

#endif
