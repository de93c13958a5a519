/* Part of the rank: what each of its parts takes. The sizes are noted in rank->memory before
 * anything of the part is allocated; one that a GPU has no room for is an ERROR_MEMORY that says
 * how much is missing and what helps. The system's memory is given lazily and shared, so only a
 * GPU's is accounted for here. */
#ifndef QUIRE_ENGINE_EXECUTOR_RANK_MEMORY_H
#define QUIRE_ENGINE_EXECUTOR_RANK_MEMORY_H

#include "engine/executor/rank.h"

/* Bytes of the device's memory that are free now. */
size_t rank_memory_free(const struct rank *rank);

int rank_memory_plan_weights(struct rank *rank, struct error *err);
/* *out_bytes: what llama_create will take, beside what the backend took when it was opened. */
int rank_memory_plan_workspace(struct rank *rank, size_t *out_bytes, struct error *err);
/* Notes what is left for the pools. planned_bytes: known to be needed and not yet taken. */
void rank_memory_measure(struct rank *rank, size_t planned_bytes);

#endif
