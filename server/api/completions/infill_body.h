/* The body of POST /infill, llama.cpp's (tools/server/README.md), as the body of a completion with
 * a suffix: input_prefix becomes its prompt, input_suffix its suffix, n_predict its max_tokens.
 * What such a body has no place for is kept here: the prompt, which comes between the prefix and
 * the gap, and the files of input_extra, which come first.
 *
 * If the model has tokens for the names of repositories and files (tokenizer_fim_marks), the files
 * are written as in llama.cpp's format_prompt_infill: REPO myproject, a line feed; for each file
 * FILE filename, a line feed and its text; and finally FILE filename and a line feed for the file
 * with the gap. If there is no FILE token, each text follows a line that says "snippet". */
#ifndef QUIRE_SERVER_API_COMPLETIONS_INFILL_BODY_H
#define QUIRE_SERVER_API_COMPLETIONS_INFILL_BODY_H

#include "server/api/fields/sampling_body.h"

#define INFILL_MAX_FILES 64
#define INFILL_MAX_NAME_BYTES 1024

/* Zeroed: the body is not one of /infill. */
struct infill_body {
    bool is_given;
    const cJSON *prompt;          /* owned by the body; NULL: not given */
    cJSON *files;                 /* owned; NULL: not given */
    struct prompt_tokens between; /* of the prompt */
    struct prompt_tokens in_front;
};

/* Checks and takes the fields that only /infill has, and converts the rest of the body to that of a
 * completion (llama_body_take), with the names of llama_body_infill_names. Returns -1 and *err, 400
 * with the field as param; infill_body_finish must be called in that case, too. */
int infill_body_take(const struct api_context *context, cJSON *json, struct infill_body *out,
                     struct byte_buffer *ignored, struct api_error *err);
/* If no truncate_prompt_tokens was given, the prompt is cut so that the context has room for
 * n_predict tokens, but at most for a quarter of the context. */
void infill_body_leave_room(const struct api_context *context, struct sampling_body *sampling);
/* Encodes what was taken. Returns -1 and *err: 400 with the field as param, or 503. */
int infill_body_read_tokens(const struct api_context *context, const struct prompt_limits *limits,
                            struct infill_body *body, struct api_error *err);
void infill_body_finish(struct infill_body *body);

#endif
