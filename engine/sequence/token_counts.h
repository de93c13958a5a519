/* Counts how often each token occurs in one sequence, kept up to date token by token, in the form
 * the sample op reads. Only sequences with a penalty have any. Engine thread only. */
#ifndef QUIRE_ENGINE_SEQUENCE_TOKEN_COUNTS_H
#define QUIRE_ENGINE_SEQUENCE_TOKEN_COUNTS_H

#include "kernels/sampling.h"

#include <stddef.h>
#include <stdint.h>

struct token_counts {
    struct token_count *items; /* [num_items], distinct tokens in order of first occurrence */
    int32_t num_items;
    int32_t *slots;    /* [num_slots] hash table: index of an item, -1: empty */
    int32_t num_slots; /* 0 or a power of two, more than num_items */
};

/* Returns the maximum memory for the counts of num_items distinct tokens. */
size_t token_counts_max_bytes(int32_t num_items);
/* A zeroed struct is empty. */
void token_counts_finish(struct token_counts *counts);

/* Notes one more occurrence, adding to its output_count 1 for a generated token and 0 for one of
 * the prompt. Returns -1 when memory is short. */
int token_counts_add(struct token_counts *counts, int32_t token, int32_t times_generated);

/* Writes the items as if these few tokens had been generated too: in the same order, with new ones
 * at the end. `out` has room for all. Returns their number. */
int32_t token_counts_fill(const struct token_counts *counts, const int32_t *tokens,
                          int32_t num_tokens, struct token_count *out);

#endif
