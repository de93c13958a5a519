/* Private to the executor of ranks (rank_executor.h): the turn in which all its ranks compute
 * (step_turns.h). The first rank that begins a step takes the turn for all of them, and the last
 * one that finishes it gives it, or keeps it for the next step if that was submitted and no other
 * process that waits has had less time. With several stages, which compute different steps at the
 * same time, a turn is for as many steps as can be in flight.
 *
 * The turn is kept while a step waits for its late inputs. It is given before anybody learns that
 * the step is finished: a process that has it always owes its engine an answer, so the engine
 * watches it. A step without tokens, which only moves blocks, needs no turn, and neither does a
 * GPU.
 *
 * All are called by ranks' threads with the executor's lock held. */
#ifndef QUIRE_ENGINE_EXECUTOR_RANK_TURN_H
#define QUIRE_ENGINE_EXECUTOR_RANK_TURN_H

#include <stdbool.h>
#include <stdint.h>

struct rank_executor;
struct rank_thread;

struct rank_turn {
    enum { TURN_NONE, TURN_REQUESTED, TURN_HELD } state;
    int64_t taken_ns;
    uint64_t end; /* steps before this one may begin: they did, or the turn is for them */
};

/* Returns whether the rank may begin its next step now, which was submitted. */
bool rank_turn_covers(const struct rank_thread *thread);
/* Takes the turn for the rank's next step; the lock is released meanwhile. Returns false if another
 * rank is taking or has the turn: there is nothing to do until something changes. */
bool rank_turn_take(struct rank_thread *thread);
/* Gives the turn if no rank computes and its time is over. Called after a rank has finished a step.
 */
void rank_turn_give(struct rank_executor *executor);

#endif
