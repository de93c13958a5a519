/* Applies a step's results: appends sampled tokens, pushes their events, forks siblings, advances
 * beams, ends sequences. Part of the core. */
#ifndef QUIRE_ENGINE_CORE_STEP_COMMIT_H
#define QUIRE_ENGINE_CORE_STEP_COMMIT_H

#include "engine/core/engine_core_private.h"

/* Takes core->result, which the executor filled for the batch that was built from the plan. */
void step_commit(struct engine_core *core, const struct step_plan *plan, const struct batch *batch,
                 int64_t now_ns);

#endif
