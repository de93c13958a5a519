#include "engine/core/step_timer.h"

static int64_t read_clock(const struct step_timer *timer) {
    return timer->clock != NULL ? timer->clock(timer->context) : 0;
}

void step_timer_start(struct step_timer *timer) {
    if (timer->last_ns == 0)
        timer->last_ns = read_clock(timer);
}

void step_timer_stop(struct step_timer *timer) {
    timer->last_ns = 0;
    timer->empty_since_ns = 0;
    timer->next = (struct step_times){0};
}

void step_timer_end(struct step_timer *timer, enum step_part part, struct step_times *times) {
    int64_t now_ns = read_clock(timer);
    times->host_ns[part] += now_ns - timer->last_ns;
    timer->last_ns = now_ns;
}

void step_timer_launched(struct step_timer *timer, struct step_times *out) {
    step_timer_end(timer, STEP_PART_LAUNCH, &timer->next);
    if (timer->empty_since_ns != 0)
        timer->next.gap_ns = timer->last_ns - timer->empty_since_ns;
    timer->empty_since_ns = 0;
    *out = timer->next;
    timer->next = (struct step_times){0};
}

void step_timer_waited(struct step_timer *timer, struct step_times *times, bool is_empty) {
    step_timer_end(timer, STEP_PART_WAIT, times);
    if (is_empty)
        timer->empty_since_ns = timer->last_ns;
}
