/* Private to kernels/cpu: memory the ops other than the matrix product work in. `plan` is allocated
 * at start, for the largest step. The workers' areas grow to the model's size in its first step,
 * whatever the step (the server's self-test), and `partials` can be done without. */
#ifndef QUIRE_KERNELS_CPU_CPU_OP_SCRATCH_H
#define QUIRE_KERNELS_CPU_CPU_OP_SCRATCH_H

#include <stddef.h>
#include <stdint.h>

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

/* Memory of at least `bytes`; what it held may be lost. NULL when memory is short: the area is
 * empty then. Called while no worker runs. */
void *scratch_area_reserve(struct scratch_area *area, size_t bytes);
/* scratch_area_reserve for every worker's area. Returns -1 when memory is short. */
int cpu_op_scratch_reserve_workers(struct cpu_op_scratch *scratch, size_t bytes);

/* cpu_attention.c: what the plan of a step of so many tokens takes. */
size_t cpu_attention_plan_bytes(int32_t num_tokens);

#endif
