/* An executor whose ranks are processes, on one machine or several (kernels/transport.h): rank 0's,
 * in the engine's process. Each step's arena goes to the others, which compute their shares of it
 * (distributed_rank.h), and all meet in the collective ops. The result comes back from the first rank
 * of the last stage, where that is not rank 0.
 *
 * A rank that ends, hangs or is cut off is noticed within the transport's timeout: by those that wait
 * for it in a step, and by both sides while there is none, since rank 0 asks every rank now and then
 * whether it is there. The executor then says ERROR_DEVICE, and each process is to leave by _exit(2);
 * whatever started them starts them again, all together. */
#ifndef QUIRE_ENGINE_DISTRIBUTED_EXECUTOR_H
#define QUIRE_ENGINE_DISTRIBUTED_EXECUTOR_H

#include "engine/executor/executor.h"

/* As executor_create, with config->transport; every other rank calls distributed_rank_run. Does not
 * take the transport: it outlives the executor. */
int distributed_executor_create(const struct model *model, const struct executor_config *config,
                                struct executor_info *info, struct executor **out,
                                struct error *err);

#endif
