/* The answers of llama.cpp's /completion and /infill (tools/server/README.md). */
#ifndef QUIRE_SERVER_API_COMPLETIONS_LLAMA_FORMAT_H
#define QUIRE_SERVER_API_COMPLETIONS_LLAMA_FORMAT_H

#include "server/api/call/api_call_type.h"

#include <cjson/cJSON.h>

/* What is answered for a choice. The buffers hold its output that is not sent yet. */
struct llama_answer {
    const struct api_call *call;
    int32_t choice;                          /* of the call */
    const struct byte_buffer *content;       /* text */
    const struct byte_buffer *tokens;        /* items */
    const struct byte_buffer *probabilities; /* items; NULL: not requested */
    const struct byte_buffer *prompt_scores; /* items; NULL: not requested */
    int32_t max_model_len;
    bool has_new_line; /* somewhere in its whole text */
    bool has_timings;  /* before its end, too */
};

/* Appends the members that say what is new; is_end: also what is known at the end, namely how the
 * choice was sampled and how long it took. */
void llama_format_members(const struct llama_answer *answer, bool is_end, struct byte_buffer *out);
/* Appends the same as a separate object, with the number `index`. */
void llama_format_answer(const struct llama_answer *answer, int32_t index, bool is_end,
                         struct byte_buffer *out);
/* Appends an object with those members of `whole`, an object written by json_write, that the
 * strings of `paths` name: "a/b" is the member b of a, and is named "a/b". Members that `whole`
 * does not have are left out. */
void llama_format_select(const struct byte_buffer *whole, const cJSON *paths,
                         struct byte_buffer *out);
/* Appends the members of generation_settings that describe how tokens are chosen. */
void llama_format_settings(const struct sampling_settings *settings, struct byte_buffer *out);

#endif
