/* Processes that compute one model together, each a rank of it: how each finds the others, and what
 * those other than rank 0 do, which distributed_executor.h is the other side of. */
#ifndef QUIRE_ENGINE_DISTRIBUTED_RANK_H
#define QUIRE_ENGINE_DISTRIBUTED_RANK_H

#include "engine/executor/executor.h"

struct transport;

/* Opens the way to the other ranks where this process was started as one of several, by mpirun or the
 * like; else *out is NULL. A rank that does not answer within the timeout counts as lost. Errors of
 * transport_open. */
int distributed_rank_open(int32_t timeout_s, struct transport **out, struct error *err);
int32_t distributed_rank_number(const struct transport *transport); /* of this process, from 0 */
int32_t distributed_rank_count(const struct transport *transport);
/* By every rank, once its executor is destroyed. A process that has failed leaves by _exit(2)
 * instead. */
void distributed_rank_close(struct transport *transport);

/* Starts the rank config->transport->rank, and computes until rank 0 dismisses it: 0. -1 with errors
 * of executor_create, or with ERROR_DEVICE when rank 0, or another rank, is gone or has let the
 * timeout pass: the process is then to leave by _exit(2). `ready` is called once it has started. */
int distributed_rank_run(const struct model *model, const struct executor_config *config,
                         void (*ready)(void *context, const struct executor_info *info),
                         void *context, struct error *err);

#endif
