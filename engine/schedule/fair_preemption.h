/* Which running group gives way to a share that waits. Turns alone (share_queue.h) decide about what
 * becomes free: a share whose requests are long would hold all running slots until they end,
 * whoever comes meanwhile.
 *
 * What shares hold is compared by dominant resource fairness (Ghodsi et al., NSDI 2011): of running
 * slots and KV blocks the one of which a share holds the larger part of the server's, by its weight.
 * A group gives way when its share, without it, still holds as much as the other one would with the
 * group that waits: so nothing moves back, and the first group of a share always stays. What
 * computing it again costs is bounded: since it was admitted last, at least half of the tokens that
 * it was ever served were computed.
 *
 * A share that runs nothing is not kept waiting, so that its first tokens come within a few steps
 * beside any other's load. Where it lacks a slot alone what gives way is still in the prefix cache,
 * so that it costs next to nothing, and how much it was served does not matter. */
#ifndef QUIRE_ENGINE_SCHEDULE_FAIR_PREEMPTION_H
#define QUIRE_ENGINE_SCHEDULE_FAIR_PREEMPTION_H

#include "engine/schedule/scheduler.h"

/* Returns the last group of the share that holds most, of those that are to give way to `next`,
 * which waits and finds no room: it lacks blocks, or slots alone. NULL: there is none. It may be in
 * flight. */
struct sequence_group *fair_preemption_victim(struct scheduler *scheduler,
                                              const struct sequence_group *next, bool lacks_blocks);

#endif
