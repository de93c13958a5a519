/* The options that concern the engine's worker, checked against the model. */
#ifndef QUIRE_SERVER_WORKER_OPTIONS_H
#define QUIRE_SERVER_WORKER_OPTIONS_H

#include "config/options.h"
#include "engine/executor/worker_executor.h"

/* ERROR_CONFIG for a max-model-len that the model was not trained for, or below 2. The result
 * points into options. */
int worker_options_read(const struct options *options, const struct model *model,
                        struct worker_config *out, struct error *err);

#endif
