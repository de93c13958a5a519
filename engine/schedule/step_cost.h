/* Predicts how long a step takes from the times of previous steps: a linear function of the amounts
 * of its work, fitted by recursive least squares. The prediction for an unusual step has a wide
 * margin, so that what is sized by it starts small and grows with measurements.
 *
 * Each weight is at least 0, and drifts by some per cent of itself per step, which lets the fit
 * follow a machine that becomes slower or faster within a dozen steps (a Kalman filter whose state
 * walks at random: Ljung, System Identification, 2nd edition, section 11.2). A time that is off by
 * more than three standard deviations counts as one that is off by three (Huber), so that one step
 * that was held up teaches little.
 *
 * It uses no clock and allocates nothing: the same calls give the same numbers. Engine thread
 * only. */
#ifndef QUIRE_ENGINE_SCHEDULE_STEP_COST_H
#define QUIRE_ENGINE_SCHEDULE_STEP_COST_H

#include <stdint.h>

enum step_work_kind {
    STEP_WORK_FIXED,   /* reading the weights */
    STEP_WORK_TOKENS,  /* products */
    STEP_WORK_ROWS,    /* of logits */
    STEP_WORK_DECODED, /* attention: tokens seen by a sequence's only token */
    STEP_WORK_CHUNKED, /* attention: tokens seen by each of several tokens, summed up */
    STEP_WORK_NUM_KINDS,
};

/* What a step computes. Zeroed: nothing. */
struct step_work {
    double amounts[STEP_WORK_NUM_KINDS];
};

/* What is computed of one sequence. */
struct step_chunk {
    int32_t begin; /* position of its first token */
    int32_t num_tokens;
    int32_t num_rows; /* of logits */
    int32_t window;   /* a token sees at most this many, itself included; 0: all before it */
};

void step_work_add(struct step_work *work, const struct step_chunk *chunk);

/* Zeroed: nothing was measured yet. */
struct step_cost {
    int64_t num_steps;
    double weights[STEP_WORK_NUM_KINDS]; /* ns of an amount of 1 in the units of step_cost.c */
    double covariance[STEP_WORK_NUM_KINDS][STEP_WORK_NUM_KINDS]; /* of the weights; ns squared */
    double noise; /* variance of what steps with chunks take, as a part of it squared */
};

/* Learns from a step that took that long. A step without duration is ignored. */
void step_cost_add(struct step_cost *cost, const struct step_work *work, int64_t ns);
/* Returns the expected time of such a step; 0 while nothing was measured. */
double step_cost_ns(const struct step_cost *cost, const struct step_work *work);
/* Returns that plus two standard deviations: of the prediction, and of the errors of the last steps
 * with chunks. So a machine with disturbances gets smaller steps. */
double step_cost_careful_ns(const struct step_cost *cost, const struct step_work *work);

/* Returns how many tokens of the largest chunk, from 0 to all, fit into a step that also computes
 * `work`, so that it takes at most `ns` by the careful prediction. */
int32_t step_cost_fit(const struct step_cost *cost, const struct step_work *work,
                      const struct step_chunk *largest, double ns);

#endif
