/* Fills the engine_stats for the core. Times are nanoseconds of the core's clock. Engine thread
 * only. */
#ifndef QUIRE_ENGINE_CORE_CORE_STATS_H
#define QUIRE_ENGINE_CORE_CORE_STATS_H

#include "engine/batch/step.h"
#include "engine/schedule/scheduler.h"
#include "engine/stats/engine_stats.h"

/* Notes when the sequence first ran, before the entry's tokens are computed. */
void core_stats_scheduled(struct engine_stats *stats, const struct planned_sequence *entry,
                          int64_t now_ns);
/* Notes that a fork first ran together with its parent sequence, unless it ran before. */
void core_stats_forked(const struct sequence *from, struct sequence *to);
/* Counts the prompt tokens of the entry that were never computed before; num_accepted as in
 * scheduler_commit. */
void core_stats_computed(struct engine_stats *stats, const struct planned_sequence *entry,
                         int32_t num_accepted);
/* Counts a sampled token. */
void core_stats_token(struct engine_stats *stats, struct sequence *sequence, int64_t now_ns);
/* Counts the tokens of a beam search's choice, which receives them all at once (none: num_tokens <=
 * 0). */
void core_stats_hypothesis(struct engine_stats *stats, struct sequence *choice, int32_t num_tokens,
                           int64_t now_ns);
/* Counts a sequence whose finish was set. Times are observed only for sequences that ended by
 * themselves. */
void core_stats_finished(struct engine_stats *stats, const struct sequence *sequence,
                         int64_t now_ns);
/* Counts a step that ran. */
void core_stats_step(struct engine_stats *stats, int32_t num_tokens, int64_t now_ns);
/* Counts the times of a step that was committed. */
void core_stats_step_times(struct engine_stats *stats, const struct step_times *times);
/* Sets the gauges of what is running, waiting and held now. */
void core_stats_gauges(struct engine_stats *stats, const struct scheduler *scheduler);

/* --- Times of steps --- */

/* Measures engine_stats.step_gap and step_host: the engine thread's time for each part of a step,
 * and how long the executor had no step although requests could run. Each part ends where the next
 * one begins, so that a part costs one reading of the clock. Engine thread only. */
struct step_timer {
    /* Nanoseconds, never 0, never falling; NULL: all times are 0. */
    int64_t (*clock)(void *context);
    void *context;
    int64_t last_ns; /* when the last part ended; 0: stopped */
    /* When the last step in flight was found to be done; 0: a step is in flight, or none could
     * run. */
    int64_t empty_since_ns;
    struct step_times next; /* of the step that is not launched yet */
};

/* Begins the first part, unless the timer runs. */
void step_timer_start(struct step_timer *timer);
/* Nothing can run: the time until the next start belongs to no step, and is not a gap. */
void step_timer_stop(struct step_timer *timer);
/* Ends a part of *times: those of a step in flight, or timer->next. */
void step_timer_end(struct step_timer *timer, enum step_part part, struct step_times *times);
/* Ends the launch of the next step, whose times go to *out. */
void step_timer_launched(struct step_timer *timer, struct step_times *out);
/* Ends the wait for the step that *times belongs to; is_empty: no other step is in flight. */
void step_timer_waited(struct step_timer *timer, struct step_times *times, bool is_empty);

#endif
