/* Turns of processes that compute on the same cores. Each has a thread per core; if several compute
 * at the same time, their threads take the cores from one another, and all that wait for a thread
 * wait with it. So a process takes the turn before it computes a step and gives it back after it,
 * or after more steps. Processes that always have a step to compute get the same time, each with
 * all cores: the turn goes to the one that has had it for the shortest time, counted in slices of
 * STEP_TURNS_SLICE_NS, and of several to the one that has waited longest. Next to a process that
 * computes long prompts, one that decodes has time for many tokens after each chunk. Who comes
 * after a pause has saved up nothing: it starts at the time of the one whose turn it is (start-time
 * fair queueing, Goyal, Vin and Cheng 1996). If nobody else wants the turn, it costs 0.2 us.
 *
 * The turns lie in memory that the engine's process creates and the rank processes map. There is no
 * lock: a process that is killed or stopped, wherever it is, leaves nothing half done that others
 * wait for. It may keep the turn itself:
 *
 * - If it was killed, the engine's process gives the turn for it, once it has seen it end.
 * - If it was stopped or hangs, the others wait. Their engines see that they wait, and do not count
 *   them as hanging. The engine of the one that has the turn ends it after --device-timeout, and
 *   gives the turn for it; without that timeout the others wait forever.
 * - If it was stopped while it waited, nobody notices until its turn has come.
 *
 * A wake-up that a killed process did not send is made up for within STEP_TURNS_LOOK_MS. */
#ifndef QUIRE_ENGINE_EXECUTOR_STEP_TURNS_H
#define QUIRE_ENGINE_EXECUTOR_STEP_TURNS_H

#include "config/base/clock.h"
#include "config/base/error.h"

#include <stdbool.h>
#include <stdint.h>

#define STEP_TURNS_MAX_SLOTS 64
#define STEP_TURNS_LOOK_MS 100 /* between two looks of a process that waits */
#define STEP_TURNS_SLICE_NS (20 * CLOCK_NS_PER_MS)

struct step_turns;

/* --- The engine's process; any thread --- */

/* Returns NULL when memory is short or the system refuses. */
struct step_turns *step_turns_create(struct error *err);
/* For both kinds of process. No slot is used any more. Accepts NULL. */
void step_turns_destroy(struct step_turns *turns);
/* Returns the descriptor of the memory, at least RANK_MIN_FD, closed on exec. */
int step_turns_fd(const struct step_turns *turns);

/* Adds a process, and returns its slot; -1 with ERROR_CONFIG: all slots are in use. */
int32_t step_turns_add(struct step_turns *turns, struct error *err);
/* The slot has no process any more, and its turn was given. */
void step_turns_remove(struct step_turns *turns, int32_t slot);
/* Returns whether the slot's process waits for its turn. */
bool step_turns_is_waiting(const struct step_turns *turns, int32_t slot);

/* --- The process of a slot --- */

/* Maps the turns that another process has created. The descriptor stays the caller's. */
struct step_turns *step_turns_open(int fd, struct error *err);
/* Waits for the turn. A slot that has or wants it may not take it again. */
void step_turns_take(struct step_turns *turns, int32_t slot);
/* Returns whether one waits that has had the turn for a shorter time than this slot, which has had
 * it for another used_ns since it took it. */
bool step_turns_is_over(const struct step_turns *turns, int32_t slot, int64_t used_ns);
/* Gives the turn, which the slot had for used_ns. The engine's process calls it, with 0, for a
 * process that has ended: whether that had the turn, waited for it, or neither, the slot is free
 * then. */
void step_turns_give(struct step_turns *turns, int32_t slot, int64_t used_ns);

#endif
