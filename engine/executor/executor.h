/* All ranks as one: takes a batch, returns sampled tokens. The engine thread is its only caller.
 *
 * An interface, so that tests drive the whole engine with scripted tokens and no model. The real
 * one is worker_executor_create (worker_executor.h): ranks as threads of this process. */
#ifndef QUIRE_ENGINE_EXECUTOR_H
#define QUIRE_ENGINE_EXECUTOR_H

#include "config/error.h"
#include "models/batch.h"

struct executor;

struct executor_ops {
    /* Runs one step and waits for it. 0, or -1 with ERROR_DEVICE: the executor is then unusable. */
    int (*run)(struct executor *executor, const struct batch *batch, struct step_result *result,
               struct error *err);
    void (*destroy)(struct executor *executor);
};

struct executor {
    const struct executor_ops *ops;
};

#endif
