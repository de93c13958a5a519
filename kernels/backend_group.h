/* Private to the implementations of groups: every group's state starts with this. */
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

#endif
