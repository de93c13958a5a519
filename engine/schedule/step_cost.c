#include "engine/schedule/step_cost.h"

#include "config/base/numbers.h"

#include <math.h>
#include <stdbool.h>

/* Amounts that take about as long as each other on most machines, so that a time which several
 * kinds may have caused is shared out evenly at first. */
static const double units[STEP_WORK_NUM_KINDS] = {1, 32, 32, 32768, 32768};

#define NOISE 0.1        /* of a step's time: standard deviation, as a part of it */
#define DRIFT 0.05       /* of a weight from step to step, relative */
#define MOST_DOUBT 0.5   /* standard deviation of a weight to which drift may raise it, relative */
#define LEAST_WEIGHT 0.1 /* of the step's time: a smaller weight drifts as if it were that */
#define NOISE_STEPS 16   /* with chunks, over which their noise is averaged */
#define MOST_NOISE 1.0   /* of a step's time, relative */
#define CARE 2.0         /* standard deviations of a step's time */
#define OUTLIER 3.0      /* standard deviations */

/* --- Work --- */

/* Returns how many tokens those at [0, end) see, all together. */
static double num_seen_before(int32_t end, int32_t window) {
    double tokens = end, full = window > 0 && end > window ? window : end;
    return full * (full + 1) / 2 + (tokens - full) * window;
}

void step_work_add(struct step_work *work, const struct step_chunk *chunk) {
    if (chunk->num_tokens <= 0)
        return;
    work->amounts[STEP_WORK_FIXED] = 1;
    work->amounts[STEP_WORK_TOKENS] += chunk->num_tokens;
    work->amounts[STEP_WORK_ROWS] += chunk->num_rows;
    work->amounts[chunk->num_tokens == 1 ? STEP_WORK_DECODED : STEP_WORK_CHUNKED] +=
        num_seen_before(chunk->begin + chunk->num_tokens, chunk->window) -
        num_seen_before(chunk->begin, chunk->window);
}

static void scale(const struct step_work *work, double x[STEP_WORK_NUM_KINDS]) {
    for (int i = 0; i < STEP_WORK_NUM_KINDS; i++)
        x[i] = work->amounts[i] / units[i];
}

/* --- The fit --- */

static double dot(const double a[STEP_WORK_NUM_KINDS], const double b[STEP_WORK_NUM_KINDS]) {
    double sum = 0;
    for (int i = 0; i < STEP_WORK_NUM_KINDS; i++)
        sum += a[i] * b[i];
    return sum;
}

/* Returns the variance of the prediction, and what each weight has to do with it. */
static double spread(const struct step_cost *cost, const double x[STEP_WORK_NUM_KINDS],
                     double out_covariance[STEP_WORK_NUM_KINDS]) {
    for (int i = 0; i < STEP_WORK_NUM_KINDS; i++)
        out_covariance[i] = dot(cost->covariance[i], x);
    return fmax(dot(out_covariance, x), 0);
}

static void drift(struct step_cost *cost, double ns) {
    for (int i = 0; i < STEP_WORK_NUM_KINDS; i++) {
        double weight = fmax(cost->weights[i], LEAST_WEIGHT * ns);
        if (cost->covariance[i][i] < MOST_DOUBT * weight * MOST_DOUBT * weight)
            cost->covariance[i][i] += DRIFT * weight * DRIFT * weight;
    }
}

/* What is off by more than the weights are in doubt is noise. */
static void note_noise(struct step_cost *cost, double expected, double doubt, double measured) {
    double error = (measured - expected) / expected;
    double noise = fmin(error * error - doubt / (expected * expected), MOST_NOISE * MOST_NOISE);
    cost->noise += (fmax(noise, 0) - cost->noise) / NOISE_STEPS;
}

void step_cost_add(struct step_cost *cost, const struct step_work *work, int64_t ns) {
    double x[STEP_WORK_NUM_KINDS], shared[STEP_WORK_NUM_KINDS];
    if (ns <= 0 || work->amounts[STEP_WORK_FIXED] == 0)
        return;
    double measured = (double)ns;
    if (cost->num_steps++ == 0) {
        cost->noise = NOISE * NOISE;
        for (int i = 0; i < STEP_WORK_NUM_KINDS; i++)
            cost->covariance[i][i] = measured * measured;
    }
    scale(work, x);
    double expected = dot(cost->weights, x);
    drift(cost, expected);
    double noise = NOISE * fmax(expected, NOISE * measured);
    double doubt = spread(cost, x, shared), variance = doubt + noise * noise;
    if (expected > 0 && work->amounts[STEP_WORK_CHUNKED] > 0)
        note_noise(cost, expected, doubt, measured);
    double most = OUTLIER * sqrt(variance);
    double error = fmin(fmax(measured - expected, -most), most);
    for (int i = 0; i < STEP_WORK_NUM_KINDS; i++) {
        cost->weights[i] = fmax(cost->weights[i] + shared[i] / variance * error, 0);
        for (int j = 0; j < STEP_WORK_NUM_KINDS; j++)
            cost->covariance[i][j] -= shared[i] * shared[j] / variance;
    }
}

double step_cost_ns(const struct step_cost *cost, const struct step_work *work) {
    double x[STEP_WORK_NUM_KINDS];
    scale(work, x);
    return dot(cost->weights, x);
}

double step_cost_careful_ns(const struct step_cost *cost, const struct step_work *work) {
    double x[STEP_WORK_NUM_KINDS], shared[STEP_WORK_NUM_KINDS];
    scale(work, x);
    double expected = dot(cost->weights, x);
    return expected + CARE * sqrt(spread(cost, x, shared) + cost->noise * expected * expected);
}

/* --- Sizing --- */

static bool fits(const struct step_cost *cost, const struct step_work *work,
                 const struct step_chunk *largest, int32_t num_tokens, double ns) {
    struct step_work with = *work;
    struct step_chunk chunk = *largest;
    chunk.num_tokens = num_tokens;
    chunk.num_rows = min_int32(chunk.num_rows, num_tokens);
    step_work_add(&with, &chunk);
    return step_cost_careful_ns(cost, &with) <= ns;
}

int32_t step_cost_fit(const struct step_cost *cost, const struct step_work *work,
                      const struct step_chunk *largest, double ns) {
    int32_t fitting = 0, too_many = largest->num_tokens + 1;
    while (too_many - fitting > 1) {
        int32_t middle = fitting + (too_many - fitting) / 2;
        if (fits(cost, work, largest, middle, ns))
            fitting = middle;
        else
            too_many = middle;
    }
    return fitting;
}
