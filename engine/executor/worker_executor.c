/* One rank for now. Every further one is a worker that is handed the same batch before the first is
 * waited for. */
#include "engine/executor/worker_executor.h"

#include "engine/executor/rank.h"
#include "engine/executor/worker.h"

#include <stdlib.h>

struct worker_executor {
    struct executor base;
    struct worker *worker;
};

static int run(struct executor *executor, const struct batch *batch, struct step_result *result,
               struct error *err) {
    struct worker *worker = ((struct worker_executor *)executor)->worker;
    worker_begin(worker, batch, result);
    return worker_wait(worker, err);
}

static void destroy(struct executor *executor) {
    worker_stop(((struct worker_executor *)executor)->worker);
    free(executor);
}

int worker_executor_create(const struct model *model, const struct worker_config *config,
                           struct executor **out, struct worker_info *out_info, struct error *err) {
    static const struct executor_ops ops = {.run = run, .destroy = destroy};
    struct worker_executor *executor = calloc(1, sizeof(*executor));
    if (executor == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for the executor");
    executor->base.ops = &ops;
    if (worker_start(model, config, &executor->worker, out_info, err) != 0) {
        free(executor);
        return -1;
    }
    *out = &executor->base;
    return 0;
}

int worker_executor_plan(const struct model *model, const struct worker_config *config,
                         struct worker_info *out_info, struct error *err) {
    return rank_plan(model, config, out_info, err);
}
