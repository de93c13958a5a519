/* Private to kernels/cpu: memory the ops other than the matrix product work in. It grows at the
 * first use of a size and is then kept. */
#ifndef QUIRE_KERNELS_CPU_CPU_OP_SCRATCH_H
#define QUIRE_KERNELS_CPU_CPU_OP_SCRATCH_H

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

/* Memory of at least `bytes`; what it held may be lost. Called while no worker runs. Running out
 * of memory here is fatal: an op cannot fail. */
void *scratch_area_reserve(struct scratch_area *area, size_t bytes);
/* scratch_area_reserve for every worker's area. */
void cpu_op_scratch_reserve_workers(struct cpu_op_scratch *scratch, size_t bytes);

#endif
