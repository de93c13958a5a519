#include "server/http/engine_monitor.h"

#include <math.h>

#define MEMORY_S 15.0        /* an observation this old weighs 1/e of a new one */
#define UNKNOWN_WAIT_MS 5000 /* nothing has ended yet */
#define MIN_ENDED 2.0        /* of a client: fewer say nothing of a rate */
#define MAX_PACE_MS 1e12

/* What only waited made no room for anybody. */
static uint64_t sum_finished(const struct engine_stats *stats) {
    uint64_t sum = 0;
    for (int i = 0; i <= FINISH_ERROR; i++)
        if (i != FINISH_QUEUE_TIMEOUT && i != FINISH_ASLEEP)
            sum += stats->finished[i];
    return sum;
}

/* Averages all that was observed, until that is longer than the memory. */
static void observe_rate(struct engine_monitor *monitor, double rate, double elapsed_s) {
    monitor->busy_s += elapsed_s;
    double weight =
        monitor->busy_s < MEMORY_S ? elapsed_s / monitor->busy_s : 1 - exp(-elapsed_s / MEMORY_S);
    monitor->rate += weight * (rate - monitor->rate);
}

void engine_monitor_update(struct engine_monitor *monitor, const struct engine_stats *stats,
                           int64_t now_ms) {
    uint64_t num_finished = sum_finished(stats);
    double num_new = (double)(num_finished - monitor->num_finished);
    double elapsed_s = (double)(now_ms - monitor->now_ms) / 1e3;
    bool is_idle = stats->num_running == 0 && stats->num_waiting == 0;
    if (monitor->now_ms != 0 && elapsed_s > 0 && (!is_idle || num_new > 0))
        observe_rate(monitor, num_new / elapsed_s, elapsed_s);
    if (!stats->has_work || stats->is_restarting || stats->step != monitor->step ||
        monitor->progress_ms == 0)
        monitor->progress_ms = now_ms;
    monitor->step = stats->step;
    monitor->now_ms = now_ms;
    monitor->num_finished = num_finished;
    monitor->num_waiting = stats->num_waiting;
    monitor->num_running = stats->num_running;
}

bool engine_monitor_is_alive(const struct engine_monitor *monitor, int64_t now_ms) {
    return engine_monitor_stuck_ms(monitor, now_ms) <= ENGINE_STUCK_MS;
}

int64_t engine_monitor_time_ms(const struct engine_monitor *monitor, int64_t num_sequences) {
    return monitor->rate > 0 ? (int64_t)fmin((double)num_sequences / monitor->rate * 1e3, 1e15) : 0;
}

int64_t engine_monitor_wait_ms(const struct engine_monitor *monitor) {
    if (monitor->num_waiting == 0)
        return ENGINE_MIN_WAIT_MS;
    if (monitor->rate <= 0)
        return UNKNOWN_WAIT_MS;
    double wait_ms = (monitor->num_waiting + 1) / monitor->rate * 1e3;
    if (wait_ms > ENGINE_MAX_WAIT_MS)
        return ENGINE_MAX_WAIT_MS;
    return wait_ms < ENGINE_MIN_WAIT_MS ? ENGINE_MIN_WAIT_MS : (int64_t)wait_ms;
}

/* --- The pace of one client's queue --- */

void queue_pace_update(struct queue_pace *pace, int64_t num_ended, int64_t num_waiting,
                       int64_t now_ms) {
    if (pace->has_queue) {
        double elapsed_s = (double)(now_ms - pace->now_ms) / 1e3;
        double kept = exp(-elapsed_s / MEMORY_S);
        pace->ended = pace->ended * kept + (double)num_ended;
        pace->seconds = pace->seconds * kept + elapsed_s;
    }
    pace->now_ms = now_ms;
    pace->has_queue = num_waiting > 0;
}

int64_t queue_pace_wait_ms(const struct queue_pace *pace, int64_t num_waiting, int64_t now_ms) {
    double unseen_s = pace->has_queue ? (double)(now_ms - pace->now_ms) / 1e3 : 0;
    if (pace->ended < MIN_ENDED)
        return -1;
    double turns = num_waiting > 0 ? (double)num_waiting : 1;
    double wait_ms = turns * (pace->seconds + unseen_s) / pace->ended * 1e3;
    return wait_ms < MAX_PACE_MS ? (int64_t)wait_ms : (int64_t)MAX_PACE_MS;
}
