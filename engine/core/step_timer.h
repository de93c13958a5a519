/* Measures what engine_stats.step_gap and step_host count: the engine thread's time of each step by
 * part, and how long the executor had no step though requests could run. Each part ends where the
 * next one begins, so that a reading of the clock is all that one costs. Engine thread only. */
#ifndef QUIRE_ENGINE_CORE_STEP_TIMER_H
#define QUIRE_ENGINE_CORE_STEP_TIMER_H

#include "engine/batch/step.h"

struct step_timer {
    /* Nanoseconds, never 0, never falling; NULL: all times are 0. */
    int64_t (*clock)(void *context);
    void *context;
    int64_t last_ns; /* when the last part ended; 0: stopped */
    /* When the last step in flight was seen to be done; 0: one is in flight, or none could run. */
    int64_t empty_since_ns;
    struct step_times next; /* of the step that is not launched yet */
};

/* Begins the first part, unless the timer runs. */
void step_timer_start(struct step_timer *timer);
/* Nothing can run: what lies before the next start is no step's time, and no gap. */
void step_timer_stop(struct step_timer *timer);
/* Ends a part of *times: those of a step in flight, or timer->next. */
void step_timer_end(struct step_timer *timer, enum step_part part, struct step_times *times);
/* Ends the launch of the next step, whose times go to *out. */
void step_timer_launched(struct step_timer *timer, struct step_times *out);
/* Ends the wait for the step whose times these are; is_empty: no other one is in flight. */
void step_timer_waited(struct step_timer *timer, struct step_times *times, bool is_empty);

#endif
