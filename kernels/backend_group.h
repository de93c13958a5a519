/* Private to the implementations of groups and pipelines: their state starts with these. */
#ifndef QUIRE_KERNELS_BACKEND_GROUP_H
#define QUIRE_KERNELS_BACKEND_GROUP_H

#include "kernels/backend.h"

#include <stdalign.h>

#define BACKEND_GROUP_LINE 64 /* bytes of a cache line */

struct cpu_group_ops;

/* Counts of one rank, which others only read. */
struct backend_group_counts {
    alignas(BACKEND_GROUP_LINE) struct backend_group_traffic traffic;
};

/* Aligned to BACKEND_GROUP_LINE. */
struct backend_group {
    void (*destroy)(struct backend_group *group);
    const struct cpu_group_ops *ops; /* kernels/cpu; NULL on a GPU */
    int32_t num_ranks;
    int32_t only_rank;    /* the only rank that can be opened in this process; -1: all */
    struct error failure; /* the first, or ERROR_NONE */
    struct backend_group_counts counts[BACKEND_MAX_RANKS];
};

struct cpu_pipeline_ops;

struct backend_pipeline {
    void (*destroy)(struct backend_pipeline *pipeline);
    const struct cpu_pipeline_ops *ops; /* kernels/cpu; NULL on a GPU */
    int32_t num_stages, num_ranks;
    int32_t only_stage, only_rank; /* the only ones that can be opened in this process; -1: all */
    struct error failure;          /* the first, or ERROR_NONE; of the only rank */
    struct backend_group_traffic traffic[BACKEND_MAX_RANKS]; /* by stage * num_ranks + rank */
};

/* Fails with ERROR_CONFIG for a stage or rank that the pipeline does not have, or this process. */
static inline int backend_pipeline_check(const struct backend_pipeline *pipeline, int32_t stage,
                                         int32_t rank, struct error *err) {
    if (stage < 0 || stage >= pipeline->num_stages || rank < 0 || rank >= pipeline->num_ranks)
        return error_set(err, ERROR_CONFIG, "rank %d of stage %d: there are %d stages of %d", rank,
                         stage, pipeline->num_stages, pipeline->num_ranks);
    if (pipeline->only_stage >= 0 && (stage != pipeline->only_stage || rank != pipeline->only_rank))
        return error_set(err, ERROR_CONFIG, "rank %d of stage %d: this process is rank %d of %d",
                         rank, stage, pipeline->only_rank, pipeline->only_stage);
    return 0;
}

#endif
