/* Private to kernels/cpu: passes hidden states from a stage of a pipeline to the next, for both CPU
 * backends. Stages are threads of one process (cpu_pipeline_memory.c), or processes that send
 * messages (cpu_pipeline_messages.c). */
#ifndef QUIRE_KERNELS_CPU_RANKS_CPU_PIPELINE_H
#define QUIRE_KERNELS_CPU_RANKS_CPU_PIPELINE_H

#include "kernels/backend_group.h"

/* Rank `rank` of a stage. */
struct cpu_stage {
    struct backend_pipeline *pipeline; /* NULL: there is one stage */
    int32_t stage, rank;
};

/* Sends to the rank with the same number in the next stage, or receives from that of the previous
 * stage. Each returns when the other side has reached the call too. */
struct cpu_pipeline_ops {
    void (*send)(const struct cpu_stage *stage, const void *data, size_t bytes);
    void (*receive)(const struct cpu_stage *stage, void *data, size_t bytes);
};

/* Like backend_pipeline_create and backend_pipeline_create_remote, for checked numbers. */
int cpu_pipeline_create(int32_t num_stages, int32_t num_ranks, struct backend_pipeline **out,
                        struct error *err);
int cpu_pipeline_create_remote(struct transport *transport, int32_t num_stages, int32_t num_ranks,
                               struct backend_pipeline **out, struct error *err);

/* Fails with ERROR_CONFIG for a stage or rank that the pipeline does not have. */
int cpu_stage_init(struct cpu_stage *out, const struct backend_config *config, struct error *err);
/* Returns 0, or -1 with the first failure of the next two functions, after which they do
 * nothing. */
int cpu_stage_status(const struct cpu_stage *stage, struct error *err);
void cpu_stage_send(const struct cpu_stage *stage, const struct stage_rows_args *args);
void cpu_stage_receive(const struct cpu_stage *stage, const struct stage_rows_args *args);

#endif
