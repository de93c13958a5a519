/* Part of the rank: what each of its parts takes. The sizes are noted in rank->info before anything
 * of the part is allocated; one that a GPU has no room for is an ERROR_MEMORY that says how much is
 * missing and what helps. The system's memory is given lazily and shared, so only a GPU's is
 * accounted for, and the host block pool, which may be pinned. */
#ifndef QUIRE_ENGINE_EXECUTOR_RANK_MEMORY_H
#define QUIRE_ENGINE_EXECUTOR_RANK_MEMORY_H

#include "engine/executor/rank.h"

/* Bytes of the device's memory that are free now. */
size_t rank_memory_free(const struct rank *rank);

int rank_memory_plan_weights(struct rank *rank, struct error *err);
/* *out_bytes: what llama_create will take, beside what the backend took when it was opened. */
int rank_memory_plan_workspace(struct rank *rank, size_t *out_bytes, struct error *err);
/* Chooses the number of KV blocks. planned_bytes: known to be needed and not yet taken. */
int rank_memory_plan_blocks(struct rank *rank, size_t planned_bytes, struct error *err);
/* Chooses the number of host blocks, with the KV blocks planned and not yet touched. */
int rank_memory_plan_host_blocks(struct rank *rank, struct error *err);

#endif
