/* Private to kernels/cpu: scratch memory of the ops other than the matrix product, allocated at
 * start as backend.h requires: `plan` when the backend opens, for the largest step; the workers'
 * areas in the first step, which sizes them by the model and not by itself. `partials` may grow
 * later, since the ops can do without it. */
#ifndef QUIRE_KERNELS_CPU_MEMORY_CPU_OP_SCRATCH_H
#define QUIRE_KERNELS_CPU_MEMORY_CPU_OP_SCRATCH_H

#include "config/base/error.h"

#include <stddef.h>

struct scratch_area {
    void *data; /* aligned to 64 bytes */
    size_t bytes;
};

struct cpu_op_scratch {
    struct scratch_area plan;     /* attention: the step's tiles */
    struct scratch_area partials; /* attention: results of chunks that await merging */
    int num_workers;
    struct scratch_area workers[]; /* one per compute thread */
};

/* Creates a plan of plan_bytes, and areas for num_workers workers. Returns NULL with
 * ERROR_MEMORY. */
struct cpu_op_scratch *cpu_op_scratch_create(int num_workers, size_t plan_bytes, struct error *err);
/* Accepts NULL. */
void cpu_op_scratch_destroy(struct cpu_op_scratch *scratch);

/* Returns memory of at least `bytes`; its contents may be lost. NULL when memory is short: the area
 * is then empty. Called while no worker runs. */
void *cpu_op_scratch_reserve(struct scratch_area *area, size_t bytes);
/* Reserves `bytes` in every worker's area. Returns -1 when memory is short. */
int cpu_op_scratch_reserve_workers(struct cpu_op_scratch *scratch, size_t bytes);

#endif
