/* How a group loses its blocks and gets them back. Part of the scheduler. */
#ifndef QUIRE_ENGINE_SCHEDULE_PREEMPTION_H
#define QUIRE_ENGINE_SCHEDULE_PREEMPTION_H

#include "engine/schedule/scheduler_state.h"

/* Takes all blocks of a running group, which then waits: swapped out if that is estimated to take
 * less time than computing its tokens again and the host pool has room, else to be recomputed. */
void preempt_group(struct scheduler *scheduler, struct sequence_group *group);
/* Distinct blocks of the device that a swapped group needs to come back. */
int32_t preempted_num_blocks(struct scheduler *scheduler, struct sequence_group *group);
/* Brings a swapped group's blocks back; false when there are not enough. */
bool preempted_swap_in(struct scheduler *scheduler, struct sequence_group *group);

#endif
