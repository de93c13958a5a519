/* Which waiting groups get seats. Part of the scheduler. */
#ifndef QUIRE_ENGINE_SCHEDULE_ADMISSION_H
#define QUIRE_ENGINE_SCHEDULE_ADMISSION_H

#include "engine/schedule/scheduler_state.h"

/* Seats waiting groups in their order, as long as there are seats for them and blocks for all they
 * have pending on top of what those already seated were promised; stalled groups give up theirs. A
 * group that cannot run yet is passed over; the first that can keeps its turn. A beam search takes
 * all its lanes at once; a group of choices one, and further ones in its turn while seats and
 * blocks last. */
void admission_run(struct scheduler *scheduler);

#endif
