/* Reads the prompt field of a completion, and the input field of embeddings: one prompt or a list,
 * each as text or as token ids. */
#ifndef QUIRE_SERVER_API_FIELDS_PROMPT_FIELD_H
#define QUIRE_SERVER_API_FIELDS_PROMPT_FIELD_H

#include "config/json/api_error.h"
#include "server/api/call/api_context.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdint.h>

#define PROMPT_PATH_BYTES 48

/* The prompts of a request; a view of the cJSON tree. To walk it, start with item = first, then
 * item = item->next; there are num_prompts. */
struct prompt_list {
    const char *name;   /* of the field; static */
    const cJSON *first; /* a string or an array of numbers */
    bool is_list;       /* paths are "NAME[i]", otherwise "NAME" */
    int32_t num_prompts;
};

struct prompt_tokens {
    int32_t *ids; /* owned; free() */
    int32_t count;
    bool is_cut; /* there were more */
};

/* Checks the shape of the body's field: a string, an array of strings, an array of ids, or an array
 * of arrays of ids. No prompt may be empty (code empty_prompt) unless allows_empty, no list may be
 * empty, and there may be at most context->max_prompts prompts. */
int prompt_list_read(const struct api_context *context, const cJSON *body, const char *name,
                     bool allows_empty, struct prompt_list *out, struct api_error *err);
/* Writes the path of prompt number `index`, for messages. */
void prompt_list_path(const struct prompt_list *list, int32_t index, char out[PROMPT_PATH_BYTES]);

/* A text, parts of which come from a client (tokenizer_encode_spans). */
struct prompt_text {
    const char *data;
    size_t length;
    const struct text_span *client_spans;
    size_t num_client_spans;
    unsigned flags; /* enum tokenizer_flags */
};

/* truncate_prompt_tokens and truncation_side, like in vLLM: a longer prompt loses tokens at its
 * start, or with the side "right" at its end, instead of being refused. What the tokenizer adds
 * around a text stays. */
struct prompt_truncation {
    int64_t max_tokens; /* 0: not requested; -1: as many as the context leaves besides the output */
    bool keeps_start;
};

/* Reads both; absent fields leave *out zeroed. On failure returns -1 and fills *err: 400, param is
 * the field. */
int prompt_truncation_read(const struct api_context *context, const cJSON *body,
                           struct prompt_truncation *out, struct api_error *err);

/* Limits how long a prompt may be. */
struct prompt_limits {
    int64_t max_tokens;           /* of the output; -1: not given */
    const char *max_tokens_field; /* what gave it, for messages; NULL: max_tokens */
    struct prompt_truncation truncation;
};

/* Encodes a text to all its tokens, however many: an array of exactly that size, which the caller
 * frees. */
int prompt_text_encode(const struct tokenizer *tokenizer, const struct prompt_text *text,
                       const char *path, int32_t **out, size_t *out_count, struct api_error *err);

/* Encodes a text, which must leave room for output as below. */
int prompt_text_tokens(const struct api_context *context, const struct prompt_text *text,
                       const char *path, const struct prompt_limits *limits,
                       struct prompt_tokens *out, struct api_error *err);

/* Encodes one prompt: a text according to the flags (enum tokenizer_flags); ids are checked against
 * the vocabulary. Unless max_tokens is 0, the prompt, once it is cut, must leave room for one
 * output token (code context_length_exceeded). */
int prompt_read_tokens(const struct api_context *context, const cJSON *item, const char *path,
                       unsigned flags, const struct prompt_limits *limits,
                       struct prompt_tokens *out, struct api_error *err);
/* Returns how many tokens of a prompt the truncation leaves; 0: it was not requested. */
int64_t prompt_truncation_limit(const struct api_context *context,
                                const struct prompt_limits *limits);
/* Refuses a prompt of num_tokens tokens if that is more than prompt_read_tokens accepts. */
int prompt_check_length(const struct api_context *context, const char *path,
                        const struct prompt_limits *limits, int64_t num_tokens,
                        struct api_error *err);
/* Returns the flags for a text that is entirely the client's own, in which it may place control
 * tokens. */
unsigned prompt_text_flags(bool add_special, bool parse_special);

/* Refuses prompts that could never be queued together, before more is encoded: several prompts
 * whose num_tokens in all exceed context->max_prompt_tokens. */
int prompt_list_check_total(const struct api_context *context, const struct prompt_list *list,
                            int64_t num_tokens, struct api_error *err);

/* Fills *err from tokenizer_encode's negative result; `path` names the field of the text, or
 * NULL. */
int prompt_field_refuse(int code, const char *path, struct api_error *err);

#endif
