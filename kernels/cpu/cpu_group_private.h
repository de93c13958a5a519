/* Private to cpu_group*.c: what the groups have in common, those whose ranks are threads of one
 * process and reach one another's memory (cpu_group_memory.c), and those of ranks that send
 * messages (cpu_group_messages.c). */
#ifndef QUIRE_KERNELS_CPU_CPU_GROUP_PRIVATE_H
#define QUIRE_KERNELS_CPU_CPU_GROUP_PRIVATE_H

#include "kernels/backend_group.h"
#include "kernels/cpu/cpu_group.h"

#define CPU_GROUP_LINE BACKEND_GROUP_LINE

/* Of a group of two ranks or more; what cpu_group.h says of the function of that name. */
struct cpu_group_ops {
    /* Takes the memory for the ops of the rank that is opened, up to these limits; NULL: none. */
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

/* Returns the first float of a rank's slice of n: a slice begins at a line, and none is shared. */
int64_t cpu_group_slice(int64_t n, int32_t rank, int32_t num_ranks);

/* The sum of a slice, in the order of the ranks. */
struct cpu_slice_sum {
    const float *in[BACKEND_MAX_RANKS]; /* the slice of each rank's x */
    float *out[BACKEND_MAX_RANKS];      /* where it goes */
    const float *added;                 /* before the sum; NULL: nothing. May be one of out */
    int32_t num_in, num_out;
    int64_t count; /* floats */
};
void cpu_group_sum_slice(const struct cpu_rank *rank, const struct cpu_slice_sum *sum);

/* Copies [num_rows, width], or of each row lengths[row] that follow one another, to columns of rows
 * that are `stride` wide. */
struct cpu_columns {
    const float *from;
    float *to;              /* the first row's place */
    const int32_t *lengths; /* or NULL */
    size_t width, stride;
    int32_t num_rows;
};
void cpu_group_copy_columns(const struct cpu_rank *rank, const struct cpu_columns *columns);

/* sums[row] = that of in[0..num_ranks)[row], in this order. */
void cpu_group_add_rows(const double *const *in, int32_t num_ranks, int32_t num_rows, double *sums);

#endif
