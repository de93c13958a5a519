/* Counts for the core: fills the engine_stats. Times are nanoseconds of the core's clock. Engine
 * thread only. */
#ifndef QUIRE_ENGINE_CORE_STATS_H
#define QUIRE_ENGINE_CORE_STATS_H

#include "engine/batch/step.h"
#include "engine/stats/engine_stats.h"
#include "engine/schedule/scheduler.h"

/* Notes when the sequence first ran, before the entry's tokens are computed. */
void core_stats_scheduled(struct engine_stats *stats, const struct planned_sequence *entry,
                          int64_t now_ns);
/* Notes that a fork first ran with the sequence it comes from, if it had not run before. */
void core_stats_forked(const struct sequence *from, struct sequence *to);
/* Counts the prompt tokens of the entry that were never computed before; num_accepted as in
 * scheduler_commit. */
void core_stats_computed(struct engine_stats *stats, const struct planned_sequence *entry,
                         int32_t num_accepted);
/* Counts a sampled token. */
void core_stats_token(struct engine_stats *stats, struct sequence *sequence, int64_t now_ns);
/* Counts the tokens of a choice of a beam search, which got them all at once (none: num_tokens <=
 * 0). */
void core_stats_hypothesis(struct engine_stats *stats, struct sequence *choice, int32_t num_tokens,
                           int64_t now_ns);
/* Counts a sequence whose finish was set. Times are observed only for those that ended by
 * themselves. */
void core_stats_finished(struct engine_stats *stats, const struct sequence *sequence,
                         int64_t now_ns);
/* Counts a step that ran. */
void core_stats_step(struct engine_stats *stats, int32_t num_tokens, int64_t now_ns);
/* Counts the times of a step that was committed. */
void core_stats_step_times(struct engine_stats *stats, const struct step_times *times);
/* Sets the gauges: what runs, waits and is held now. */
void core_stats_gauges(struct engine_stats *stats, const struct scheduler *scheduler);

#endif
