/* What the results of a step mean for the sequences in it: tokens are appended and told, siblings
 * fork, beams move on, choices end. Part of the core. */
#ifndef QUIRE_ENGINE_CORE_STEP_COMMIT_H
#define QUIRE_ENGINE_CORE_STEP_COMMIT_H

#include "engine/core/engine_core_state.h"

/* core->result holds what the executor made of the batch, which was built from the plan. */
void step_commit(struct engine_core *core, const struct step_plan *plan, const struct batch *batch,
                 int64_t now_ns);

#endif
