#include "server/queue_estimate.h"

#include <math.h>

#define MEMORY_S 15.0 /* an observation this old weighs 1/e of a new one */
#define MIN_WAIT_MS 1000
#define MAX_WAIT_MS 120000
#define UNKNOWN_WAIT_MS 5000 /* nothing has ended yet */

static uint64_t sum_finished(const struct engine_stats *stats) {
    uint64_t sum = 0;
    for (int i = 0; i <= FINISH_ERROR; i++)
        sum += stats->finished[i];
    return sum;
}

/* Averages all that was observed, until that is longer than the memory. */
static void observe(struct queue_estimate *estimate, double rate, double elapsed_s) {
    estimate->busy_s += elapsed_s;
    double weight =
        estimate->busy_s < MEMORY_S ? elapsed_s / estimate->busy_s : 1 - exp(-elapsed_s / MEMORY_S);
    estimate->rate += weight * (rate - estimate->rate);
}

void queue_estimate_update(struct queue_estimate *estimate, const struct engine_stats *stats,
                           int64_t now_ms) {
    uint64_t num_finished = sum_finished(stats);
    double num_new = (double)(num_finished - estimate->num_finished);
    double elapsed_s = (double)(now_ms - estimate->now_ms) / 1e3;
    bool is_busy = stats->num_running > 0 || stats->num_waiting > 0 || num_new > 0;
    if (estimate->now_ms != 0 && elapsed_s > 0 && is_busy)
        observe(estimate, num_new / elapsed_s, elapsed_s);
    estimate->now_ms = now_ms;
    estimate->num_finished = num_finished;
    estimate->num_waiting = stats->num_waiting;
}

int64_t queue_estimate_wait_ms(const struct queue_estimate *estimate) {
    if (estimate->num_waiting == 0)
        return MIN_WAIT_MS;
    if (estimate->rate <= 0)
        return UNKNOWN_WAIT_MS;
    double wait_ms = (estimate->num_waiting + 1) / estimate->rate * 1e3;
    if (wait_ms > MAX_WAIT_MS)
        return MAX_WAIT_MS;
    return wait_ms < MIN_WAIT_MS ? MIN_WAIT_MS : (int64_t)wait_ms;
}
