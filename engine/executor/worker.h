/* One rank (rank.h) and its thread. Nothing of a rank is touched by any other thread, and
 * everything it will ever need is allocated before worker_start returns. */
#ifndef QUIRE_ENGINE_EXECUTOR_WORKER_H
#define QUIRE_ENGINE_EXECUTOR_WORKER_H

#include "config/error.h"
#include "engine/executor/worker_executor.h"
#include "models/batch.h"
#include "models/model.h"

struct worker;

/* Starts the thread and waits until it is ready. The model outlives the worker. */
int worker_start(const struct model *model, const struct worker_config *config, struct worker **out,
                 struct worker_info *out_info, struct error *err);
/* Hands the step over and returns at once; batch and result stay valid until worker_wait. */
void worker_begin(struct worker *worker, const struct batch *batch, struct step_result *result);
/* Sleeps until the step's result is complete. 0, or -1 with ERROR_DEVICE: no further step works. */
int worker_wait(struct worker *worker, struct error *err);
/* Ends the thread and frees everything. Accepts NULL. */
void worker_stop(struct worker *worker);

#endif
