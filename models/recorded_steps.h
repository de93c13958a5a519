/* Decode steps that a device has recorded (recording.h; CUDA graphs) up to their logits, by their
 * number of rows: that much of a step is enqueued as one piece instead of op by op, and sampling
 * follows it. One is taken where it has at least as many rows as the step, and what is left over is
 * padding (step_inputs.num_padding). Of the rank's thread. */
#ifndef QUIRE_MODELS_RECORDED_STEPS_H
#define QUIRE_MODELS_RECORDED_STEPS_H

#include "kernels/backend.h"
#include "models/batch.h"

/* Of 1, 2, 4, every 8 to 64, every 16 to 256, every 32 to as many sequences as a step may have. */
#define RECORDED_STEPS_MAX_ROWS 4096
#define RECORDED_STEPS_MAX_SIZES (3 + 8 + 12 + (RECORDED_STEPS_MAX_ROWS - 256) / 32)

struct recorded_step {
    int32_t num_rows;
    struct recording *recording;
};

struct recorded_steps {
    int32_t count;
    struct recorded_step steps[RECORDED_STEPS_MAX_SIZES]; /* by rising num_rows */
};

/* Writes the sizes that steps of at most so many rows are recorded in, the last of which is
 * max_rows or RECORDED_STEPS_MAX_ROWS. Returns their number. */
int32_t recorded_steps_sizes(int32_t max_rows, int32_t out[static RECORDED_STEPS_MAX_SIZES]);

/* Returns what to replay for the batch: the smallest that holds it. NULL: there is none, or the
 * batch is no decode step: one token and one sample row of each sequence, and no hidden sums. Reads
 * no late input. */
const struct recorded_step *recorded_steps_find(const struct recorded_steps *steps,
                                                const struct batch *batch);

#endif
