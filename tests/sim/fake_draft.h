/* The draft model of a fake executor. It has a shadow memory of its own, with the same blocks, and
 * knows the fake model's distribution: what it proposes is what will be sampled, but for every
 * third token. Checks that it has computed all that comes before what it is to compute. With
 * has_mtp it is a layer of the model, which computes a token where the model has computed the one
 * before it. */
#ifndef QUIRE_TESTS_SIM_FAKE_DRAFT_H
#define QUIRE_TESTS_SIM_FAKE_DRAFT_H

#include "tests/sim/fake_executor.h"

/* Proposes what the batch asks for. Returns 0, or -1 when something was wrong. */
int fake_draft_run(struct fake_executor *fake, const struct batch *batch,
                   struct step_result *result);
/* Returns the batch with its drafts filled in. */
struct batch fake_draft_fill_in(struct fake_executor *fake, const struct batch *batch,
                                const struct step_result *result);

#endif
