/* Private to engine/grammar/: finds the mask of a state by walking the prefix tree of the
 * vocabulary with the grammar's machine: a byte that leads nowhere cuts off its whole subtree. A
 * walk can stop anywhere and go on later; the mask is kept with the set of parse states it was
 * found for, and found again by every state that comes to the same set. Whoever has the machine. */
#ifndef QUIRE_ENGINE_GRAMMAR_MASK_WALK_H
#define QUIRE_ENGINE_GRAMMAR_MASK_WALK_H

#include "engine/grammar/machine/grammar_machine.h"

/* Begins a walk for the state, while its machine has none. Returns -1 when memory is short. */
int mask_walk_begin(struct grammar_state *state);
/* Walks on, and takes what that cost from *budget, until there is nothing left of it. Returns 0
 * when the mask is with the state's set, 1 when it is not found yet, -1 when memory is short; in
 * the first case and the last the walk is over. */
int mask_walk_run(struct grammar_machine *machine, int64_t *budget);
/* Ends the machine's walk, if it has one. */
void mask_walk_drop(struct grammar_machine *machine);

#endif
