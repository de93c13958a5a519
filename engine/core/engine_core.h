/* The engine without its thread: everything between the inbox and the token streams. One call of
 * engine_core_step drops what was cancelled, plans, runs the executor and hands out the results. It
 * has no thread and no clock of its own, so a seeded simulation drives exactly the code the server
 * runs. Used by one thread. */
#ifndef QUIRE_ENGINE_CORE_ENGINE_CORE_H
#define QUIRE_ENGINE_CORE_ENGINE_CORE_H

#include "engine/core/engine_core_state.h"

/* The executor and the tokenizer outlive the core. */
int engine_core_init(struct engine_core *core, const struct engine_core_config *config,
                     struct executor *executor, const struct tokenizer *tokenizer,
                     struct error *err);
/* engine_core_abort first, unless the core is idle. Accepts a zeroed core. */
void engine_core_finish(struct engine_core *core);

/* Takes its own reference. The request fits the limits (kv_demand_fits), and its id rises from call to call. Ends
 * it at once with FINISH_ERROR when memory is short or the core has failed. */
void engine_core_add(struct engine_core *core, struct request *request);
/* True when a step was run; false when there was nothing that could run. */
bool engine_core_step(struct engine_core *core);
/* Ends everything that is left. */
void engine_core_abort(struct engine_core *core, enum finish_reason reason);
bool engine_core_is_idle(const struct engine_core *core);

#endif
