#include "server/http/queue_pace.h"

#include <math.h>

#define MEMORY_S 15.0 /* what was this long ago weighs 1/e */
#define MIN_ENDED 2.0 /* fewer say nothing of a rate */
#define MAX_WAIT_MS 1e12

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
    return wait_ms < MAX_WAIT_MS ? (int64_t)wait_ms : (int64_t)MAX_WAIT_MS;
}
