/* The edits of a row of logits on the host: steps 2 and 3 of sampling.h, the same for the oracle
 * and the CPU. */
#ifndef QUIRE_KERNELS_SAMPLE_EDIT_H
#define QUIRE_KERNELS_SAMPLE_EDIT_H

#include "kernels/backend.h"
#include "kernels/sample_common.h"

#include <math.h>
#include <stddef.h>
#include <stdint.h>

/* Most masks allow nearly all or nearly nothing, so a word that allows all is skipped. */
static inline void sample_ban_unmasked(const uint32_t *mask, int32_t vocab_size, float *logits) {
    for (int32_t first = 0; first < vocab_size; first += 32) {
        uint32_t allowed = mask[first / 32];
        int32_t count = vocab_size - first < 32 ? vocab_size - first : 32;
        for (int32_t i = 0; allowed != UINT32_MAX && i < count; i++)
            logits[first + i] = allowed >> i & 1 ? logits[first + i] : -INFINITY;
    }
}

/* In place on the logits [vocab_size] of a row of the call. */
static inline void sample_edit_logits(const struct sample_args *args, const struct sample_row *row,
                                      float *logits) {
    size_t words = (size_t)SAMPLE_MASK_WORDS(args->vocab_size);
    for (int32_t i = row->first_bias; i < row->first_bias + row->num_biases; i++)
        logits[args->biases[i].token] += args->biases[i].bias;
    if (row->mask != SAMPLE_NO_MASK)
        sample_ban_unmasked(args->masks + (size_t)row->mask * words, args->vocab_size, logits);
    for (int32_t i = row->first_count; i < row->first_count + row->num_counts; i++) {
        float *logit = &logits[args->counts[i].token];
        *logit = sample_penalised(row, *logit, args->counts[i].output_count);
    }
}

#endif
