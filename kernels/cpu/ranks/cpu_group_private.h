/* Private to cpu_group*.c: shared by the two kinds of groups: those whose ranks are threads of one
 * process and access each other's memory (cpu_group_memory.c), and those whose ranks send messages
 * (cpu_group_messages.c). */
#ifndef QUIRE_KERNELS_CPU_RANKS_CPU_GROUP_PRIVATE_H
#define QUIRE_KERNELS_CPU_RANKS_CPU_GROUP_PRIVATE_H

#include "kernels/backend_group.h"
#include "kernels/cpu/ranks/cpu_group.h"

#define CPU_GROUP_LINE BACKEND_GROUP_LINE

/* For a group of two ranks or more; see the functions of these names in cpu_group.h. */
struct cpu_group_ops {
    /* Allocates the memory for the ops of the rank being opened, for these limits; NULL: none is
     * needed. */
    int (*open_rank)(struct backend_group *group, const struct serving_limits *limits,
                     struct error *err);
    void (*all_reduce)(const struct cpu_rank *rank, const struct all_reduce_args *args);
    void (*gather_columns)(const struct cpu_rank *rank, const struct gather_columns_args *args,
                           const int32_t *lengths);
    void (*gather)(const struct cpu_rank *rank, const void *own, size_t bytes, void *out);
    void (*broadcast)(const struct cpu_rank *rank, void *data, size_t bytes);
    void (*sum_rows)(const struct cpu_rank *rank, int32_t num_rows, const double *own,
                     double *sums);
};

static inline struct backend_group_traffic *cpu_group_traffic(const struct cpu_rank *rank) {
    return &rank->group->counts[rank->rank].traffic;
}

/* Returns the first float of a rank's slice of n floats: a slice begins at a cache line, and no
 * line is shared. */
int64_t cpu_group_slice(int64_t n, int32_t rank, int32_t num_ranks);

/* The sum of a slice, in the order of the ranks. */
struct cpu_slice_sum {
    const float *in[BACKEND_MAX_RANKS]; /* the slice of each rank's x */
    float *out[BACKEND_MAX_RANKS];      /* where it goes */
    const float *added;                 /* added before the sum; NULL: nothing. May be one of out */
    int32_t num_in, num_out;
    int64_t count; /* floats */
};
void cpu_group_sum_slice(const struct cpu_rank *rank, const struct cpu_slice_sum *sum);

/* Copies [num_rows, width], or for each row lengths[row] contiguous elements, to columns of rows
 * that are `stride` wide. */
struct cpu_columns {
    const float *from;
    float *to;              /* the first row's place */
    const int32_t *lengths; /* or NULL */
    size_t width, stride;
    int32_t num_rows;
};
void cpu_group_copy_columns(const struct cpu_rank *rank, const struct cpu_columns *columns);

/* sums[row] = sum of in[0..num_ranks)[row], in this order. */
void cpu_group_add_rows(const double *const *in, int32_t num_ranks, int32_t num_rows, double *sums);

#endif
