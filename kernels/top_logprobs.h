/* The likeliest of many tokens, where a row reports more than SAMPLE_MAX_LOGPROBS: used by the
 * sample op, and for the lists of an op that leaves them unsorted. */
#ifndef QUIRE_KERNELS_TOP_LOGPROBS_H
#define QUIRE_KERNELS_TOP_LOGPROBS_H

#include "kernels/sampling.h"

/* Moves the `count` <= n first ones by falling logprob and rising id to the front, the last of them
 * to its place, the others in no order. */
void top_logprobs_select(struct top_logprob *items, int32_t n, int32_t count);
/* The same, and puts those in order; the rest means nothing. */
void top_logprobs_sort(struct top_logprob *items, int32_t n, int32_t count);

#endif
