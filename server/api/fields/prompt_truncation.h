/* truncate_prompt_tokens and truncation_side, as vLLM has them: a prompt that is longer loses
 * tokens at its start, or with the side "right" at its end, instead of being refused. What the
 * tokenizer adds around a text stays. */
#ifndef QUIRE_SERVER_API_FIELDS_PROMPT_TRUNCATION_H
#define QUIRE_SERVER_API_FIELDS_PROMPT_TRUNCATION_H

#include "server/api/api_context.h"
#include "server/api/api_error.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdint.h>

struct prompt_truncation {
    int64_t max_tokens; /* 0: not asked for; -1: as many as the context leaves beside the output */
    bool keeps_start;
};

/* Absent fields leave *out zeroed. -1 and *err, 400, param the field. */
int prompt_truncation_read(const struct api_context *context, const cJSON *body,
                           struct prompt_truncation *out, struct api_error *err);

/* How many tokens stay of a prompt whose output may have max_output tokens (-1: not given). */
int32_t prompt_truncation_count(const struct prompt_truncation *truncation,
                                const struct api_context *context, int64_t max_output);

/* Leaves `keep` of the count tokens, of which the first `before` and the last `behind` were added;
 * returns how many there are then. */
int32_t prompt_truncation_cut(const struct prompt_truncation *truncation, int32_t *tokens,
                              int64_t count, int32_t before, int32_t behind, int32_t keep);

#endif
