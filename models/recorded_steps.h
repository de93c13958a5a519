/* Decode steps that a device has recorded (recording.h; CUDA graphs) up to their logits, by number
 * of rows. This part of a step is enqueued as one piece instead of op by op; sampling follows. A
 * recording with at least as many rows as the step is used, and the remaining rows are padding
 * (step_inputs.num_padding). Rank's thread only. */
#ifndef QUIRE_MODELS_RECORDED_STEPS_H
#define QUIRE_MODELS_RECORDED_STEPS_H

#include "kernels/backend.h"
#include "models/batch.h"

/* Sizes: 1, 2, 4, multiples of 8 to 64, of 16 to 256, and of 32 to the maximum number of sequences
 * of a step. */
#define RECORDED_STEPS_MAX_ROWS 4096
#define RECORDED_STEPS_MAX_SIZES (3 + 8 + 12 + (RECORDED_STEPS_MAX_ROWS - 256) / 32)

struct recorded_step {
    int32_t num_rows;
    struct recording *recording;
};

struct recorded_steps {
    int32_t count;
    struct recorded_step steps[RECORDED_STEPS_MAX_SIZES]; /* by ascending num_rows */
};

/* Writes the sizes that are recorded for steps of at most max_rows rows; the last is max_rows or
 * RECORDED_STEPS_MAX_ROWS. Returns their number. */
int32_t recorded_steps_sizes(int32_t max_rows, int32_t out[static RECORDED_STEPS_MAX_SIZES]);

/* Returns the smallest recording that holds the batch. NULL: there is none, or the batch is not a
 * decode step, which has one token and one sample row per sequence and no hidden sums. Reads no
 * late input. */
const struct recorded_step *recorded_steps_find(const struct recorded_steps *steps,
                                                const struct batch *batch);

#endif
