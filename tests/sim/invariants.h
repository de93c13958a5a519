/* Checks what must hold of the memory manager and the scheduler whatever happens, from their state
 * and the shadow of the device's memory. A violation is reported by simulation_fail. */
#ifndef QUIRE_TESTS_SIM_INVARIANTS_H
#define QUIRE_TESTS_SIM_INVARIANTS_H

#include "models/batch.h"
#include "tests/sim/simulation.h"

/* Checks who may write where, before the batch runs. */
void invariants_check_batch(struct simulation *sim, const struct batch *batch);
/* Checks that a batch that has all its inputs fits its arena. */
void invariants_check_capacity(struct simulation *sim, const struct batch *batch);
/* Checks the state after a step, whether it ran or not. */
void invariants_check_state(struct simulation *sim);

#endif
