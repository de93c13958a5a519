/* How much of a step's time a prompt's chunk may take: what max_step_ns leaves beside what is
 * scheduled, as step_cost predicts it. For the scheduler's plan alone; engine thread only. */
#ifndef QUIRE_ENGINE_SCHEDULE_STEP_TIME_H
#define QUIRE_ENGINE_SCHEDULE_STEP_TIME_H

#include "engine/schedule/scheduler.h"

/* Returns the sequence's first num_tokens pending tokens as work of the step. */
struct step_chunk step_time_chunk(const struct scheduler *scheduler,
                                  const struct sequence *sequence, int32_t num_tokens);
/* Returns how long the step may take; 0: as long as it likes. */
double step_time_limit_ns(const struct scheduler *scheduler);
/* Returns how many further pending tokens of the sequence, up to `most`, are computed in `part` of
 * the time that what is scheduled leaves of limit_ns, which is not 0. */
int32_t step_time_fit(const struct scheduler *scheduler, const struct sequence *sequence,
                      int32_t most, double limit_ns, double part);

#endif
