#include "kernels/cpu/memory/cpu_op_scratch.h"

#include <stdlib.h>

#define WORKER_BYTES ((size_t)768 << 10) /* to begin with: attention with 96 rows of any head */

struct cpu_op_scratch *cpu_op_scratch_create(int num_workers, size_t plan_bytes,
                                             struct error *err) {
    struct cpu_op_scratch *scratch =
        calloc(1, sizeof(*scratch) + (size_t)num_workers * sizeof(scratch->workers[0]));
    if (scratch != NULL)
        scratch->num_workers = num_workers;
    if (scratch == NULL || cpu_op_scratch_reserve_workers(scratch, WORKER_BYTES) != 0 ||
        (plan_bytes > 0 && cpu_op_scratch_reserve(&scratch->plan, plan_bytes) == NULL)) {
        cpu_op_scratch_destroy(scratch);
        error_set(err, ERROR_MEMORY, "cannot allocate the scratch memory of %d threads",
                  num_workers);
        return NULL;
    }
    return scratch;
}

void cpu_op_scratch_destroy(struct cpu_op_scratch *scratch) {
    if (scratch == NULL)
        return;
    for (int w = 0; w < scratch->num_workers; w++)
        free(scratch->workers[w].data);
    free(scratch->partials.data);
    free(scratch->plan.data);
    free(scratch);
}

void *cpu_op_scratch_reserve(struct scratch_area *area, size_t bytes) {
    if (bytes > area->bytes) {
        size_t padded = (bytes + bytes / 4 + 63) / 64 * 64;
        free(area->data);
        area->data = aligned_alloc(64, padded);
        area->bytes = area->data != NULL ? padded : 0;
    }
    return area->data;
}

int cpu_op_scratch_reserve_workers(struct cpu_op_scratch *scratch, size_t bytes) {
    for (int w = 0; w < scratch->num_workers; w++)
        if (cpu_op_scratch_reserve(&scratch->workers[w], bytes) == NULL)
            return -1;
    return 0;
}
