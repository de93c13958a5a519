/* An executor whose ranks are processes, on one machine or several (kernels/transport.h): rank 0's,
 * in the engine's process. Each step's arena goes to the others, which compute their shares of it
 * (distributed_rank_run), and all meet in the collective ops. The result comes back from the first
 * rank of the last stage, where that is not rank 0.
 *
 * A rank that ends, hangs or is cut off is noticed within the transport's timeout: by those that
 * wait for it in a step, and by both sides while there is none, since rank 0 asks every rank now
 * and then whether it is there. The executor then says ERROR_DEVICE, and each process is to leave
 * by _exit(2); whatever started them starts them again, all together. */
#ifndef QUIRE_ENGINE_REMOTE_RANKS_H
#define QUIRE_ENGINE_REMOTE_RANKS_H

#include "engine/executor/executor.h"

/* As executor_create, with config->transport; every other rank calls distributed_rank_run. Does not
 * take the transport: it outlives the executor. */
int distributed_executor_create(const struct model *model, const struct executor_config *config,
                                struct executor_info *info, struct executor **out,
                                struct error *err);

/* --- The processes --- */

struct transport;

/* Opens the way to the other ranks where this process was started as one of several, by mpirun or
 * the like; else *out is NULL. A rank that does not answer within the timeout counts as lost.
 * Errors of transport_open. */
int distributed_rank_open(int32_t timeout_s, struct transport **out, struct error *err);
int32_t distributed_rank_number(const struct transport *transport); /* of this process, from 0 */
int32_t distributed_rank_count(const struct transport *transport);
/* By every rank, once its executor is destroyed. A process that has failed leaves by _exit(2)
 * instead. */
void distributed_rank_close(struct transport *transport);

/* Starts the rank config->transport->rank, and computes until rank 0 dismisses it: 0. -1 with
 * errors of executor_create, or with ERROR_DEVICE when rank 0, or another rank, is gone or has let
 * the timeout pass: the process is then to leave by _exit(2). `ready` is called once it has
 * started. */
int distributed_rank_run(const struct model *model, const struct executor_config *config,
                         void (*ready)(void *context, const struct executor_info *info),
                         void *context, struct error *err);

#endif
