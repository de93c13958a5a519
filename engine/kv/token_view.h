/* A view of the tokens of one sequence without a copy: a prompt shared with its siblings, and what
 * was generated after it. Passed by value; valid until the sequence gets another token. */
#ifndef QUIRE_ENGINE_KV_TOKEN_VIEW_H
#define QUIRE_ENGINE_KV_TOKEN_VIEW_H

#include <stdint.h>

struct token_view {
    const int32_t *prompt;
    int32_t num_prompt;
    const int32_t *output; /* NULL while there is none */
    int32_t num_output;
};

/* Copies the count tokens from position `first` on, all of which must exist. */
void token_view_copy(const struct token_view *view, int32_t first, int32_t count, int32_t *out);

#endif
