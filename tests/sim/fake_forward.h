/* Computes a step on the shadow of the memory that a fake executor keeps, and checks all that it
 * reads and writes there. */
#ifndef QUIRE_TESTS_SIM_FAKE_FORWARD_H
#define QUIRE_TESTS_SIM_FAKE_FORWARD_H

#include "tests/sim/fake_executor.h"

/* Returns 0, or -1 when something was wrong: fake->violation then says what. */
int fake_forward_run(struct fake_executor *fake, const struct batch *batch,
                     struct step_result *result);
/* Notes what is wrong, the first time. Returns -1. */
int fake_forward_violate(struct fake_executor *fake, const char *what, int64_t a, int64_t b);

#endif
