/* The other side of distributed_executor.h: a rank in a process of its own, that computes what rank 0
 * tells it. */
#ifndef QUIRE_ENGINE_DISTRIBUTED_RANK_H
#define QUIRE_ENGINE_DISTRIBUTED_RANK_H

#include "engine/executor.h"

/* Starts the rank config->transport->rank, and computes until rank 0 dismisses it: 0. -1 with errors
 * of executor_create, or with ERROR_DEVICE when rank 0, or another rank, is gone or has let the
 * timeout pass: the process is then to leave by _exit(2). `ready` is called once it has started. */
int distributed_rank_run(const struct model *model, const struct executor_config *config,
                         void (*ready)(void *context, const struct executor_info *info),
                         void *context, struct error *err);

#endif
