/* The body of POST /infill, llama.cpp's (tools/server/README.md), as that of a completion with a
 * suffix: input_prefix is its prompt, input_suffix its suffix, n_predict its max_tokens. What that
 * has no place for is kept here: the prompt, which stands between the prefix and the gap, and the
 * files of input_extra, which stand in front of all.
 *
 * Of a model that knows what stands in front of a repository's name and a file's
 * (tokenizer_fim_marks) the files are, as llama.cpp's format_prompt_infill writes them, REPO
 * myproject, a line feed, for each FILE filename, a line feed and its text, and at last FILE
 * filename, a line feed, of the file with the gap; where there is no FILE each text stands behind a
 * line that says "snippet". */
#ifndef QUIRE_SERVER_API_COMPLETIONS_INFILL_BODY_H
#define QUIRE_SERVER_API_COMPLETIONS_INFILL_BODY_H

#include "server/api/fields/sampling_body.h"

#define INFILL_MAX_FILES 64
#define INFILL_MAX_NAME_BYTES 1024

/* Zeroed: the body is none of these. */
struct infill_body {
    bool is_given;
    const cJSON *prompt;          /* of the body; NULL: not given */
    cJSON *files;                 /* owned; NULL: not given */
    struct prompt_tokens between; /* of the prompt */
    struct prompt_tokens in_front;
};

/* Checks and takes what is /infill's own, and makes the rest of the body what a completion's is
 * (llama_body_take), by the names llama_body_infill_names. -1 and *err: 400, param the field;
 * infill_body_finish all the same. */
int infill_body_take(const struct api_context *context, cJSON *json, struct infill_body *out,
                     struct byte_buffer *ignored, struct api_error *err);
/* Where no truncate_prompt_tokens was given the prompt is cut to leave the context n_predict
 * tokens, or a quarter of it, which is the most. */
void infill_body_leave_room(const struct api_context *context, struct sampling_body *sampling);
/* Encodes what was taken. -1 and *err: 400, param the field, or 503. */
int infill_body_read_tokens(const struct api_context *context, const struct prompt_limits *limits,
                            struct infill_body *body, struct api_error *err);
void infill_body_finish(struct infill_body *body);

#endif
