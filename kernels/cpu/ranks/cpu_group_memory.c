/* Groups of ranks that are threads of one process: each publishes the addresses of its operands,
 * they synchronise, each does its share on the memory of all, and they synchronise again before any
 * continues. */
#include "config/base/clock.h"
#include "config/base/cores.h"
#include "kernels/cpu/ranks/cpu_group_private.h"
#include "kernels/spin_wait.h"

#include <stdlib.h>
#include <string.h>

/* What a rank publishes for one op. */
struct place {
    alignas(CPU_GROUP_LINE) const void *in;
    void *out;
    int32_t width;
};

struct memory_group {
    struct backend_group base;
    int64_t spin_ns;
    alignas(CPU_GROUP_LINE) atomic_uint num_there;
    alignas(CPU_GROUP_LINE) atomic_uint num_meetings; /* word that those who wait look at */
    atomic_int num_sleepers;
    struct place places[BACKEND_MAX_RANKS];
};

static void destroy(struct backend_group *group) {
    free(group);
}

static void await_meeting(struct memory_group *group, unsigned seen) {
    if (spin_wait_until(&group->num_meetings, spin_wait_differs, seen, group->spin_ns))
        return;
    atomic_fetch_add(&group->num_sleepers, 1);
    while (atomic_load(&group->num_meetings) == seen)
        spin_wait_sleep(&group->num_meetings, seen);
    atomic_fetch_sub(&group->num_sleepers, 1);
}

/* Returns when every rank is here; what each has written before, all see after. */
static void meet(const struct cpu_rank *rank) {
    struct memory_group *group = (struct memory_group *)rank->group;
    unsigned seen = atomic_load(&group->num_meetings);
    if (atomic_fetch_add(&group->num_there, 1) + 1 == (unsigned)group->base.num_ranks) {
        atomic_store(&group->num_there, 0);
        atomic_fetch_add(&group->num_meetings, 1);
        if (atomic_load(&group->num_sleepers) > 0)
            spin_wait_wake_all(&group->num_meetings);
        return;
    }
    int64_t start_ns = clock_now_ns();
    await_meeting(group, seen);
    cpu_group_traffic(rank)->wait_ns += clock_now_ns() - start_ns;
}

/* Publishes what this rank brings and returns what all of them do. They stay until the caller and
 * the others have met once more. */
static const struct place *bring(const struct cpu_rank *rank, const void *in, void *out,
                                 int32_t width) {
    struct place *places = ((struct memory_group *)rank->group)->places;
    places[rank->rank] = (struct place){.in = in, .out = out, .width = width};
    meet(rank);
    return places;
}

/* Each rank writes the sum of its slice to all. */
static void all_reduce(const struct cpu_rank *rank, const struct all_reduce_args *args) {
    int32_t num_ranks = rank->group->num_ranks;
    int64_t n = (int64_t)args->num_rows * args->width;
    int64_t first = cpu_group_slice(n, rank->rank, num_ranks);
    const struct place *places = bring(rank, args->x, args->out, args->width);
    struct cpu_slice_sum sum = {.num_in = num_ranks,
                                .num_out = num_ranks,
                                .added = args->accumulate ? (const float *)args->out + first : NULL,
                                .count = cpu_group_slice(n, rank->rank + 1, num_ranks) - first};
    for (int32_t r = 0; r < num_ranks; r++) {
        sum.in[r] = (const float *)places[r].in + first;
        sum.out[r] = (float *)places[r].out + first;
    }
    cpu_group_sum_slice(rank, &sum);
    meet(rank);
}

/* Each rank writes its columns into the rows of rank 0. */
static void gather_columns(const struct cpu_rank *rank, const struct gather_columns_args *args,
                           const int32_t *lengths) {
    const struct place *places = bring(rank, args->x, args->out, args->width);
    struct cpu_columns columns = {.from = args->x,
                                  .lengths = lengths, /* rank 0's own come first */
                                  .width = (size_t)args->width,
                                  .num_rows = args->num_rows};
    for (int32_t r = 0; r < rank->group->num_ranks; r++) {
        if (r == rank->rank)
            columns.to = (float *)places[0].out + columns.stride;
        columns.stride += (size_t)places[r].width;
    }
    cpu_group_copy_columns(rank, &columns);
    meet(rank);
}

static void gather(const struct cpu_rank *rank, const void *own, size_t bytes, void *out) {
    const struct place *places = bring(rank, NULL, out, 0);
    memcpy((char *)places[0].out + (size_t)rank->rank * bytes, own, bytes);
    meet(rank);
}

static void broadcast(const struct cpu_rank *rank, void *data, size_t bytes) {
    const struct place *places = bring(rank, data, NULL, 0);
    if (rank->rank > 0)
        memcpy(data, places[0].in, bytes);
    meet(rank);
}

static void sum_rows(const struct cpu_rank *rank, int32_t num_rows, const double *own,
                     double *sums) {
    const struct place *places = bring(rank, own, NULL, 0);
    const double *in[BACKEND_MAX_RANKS];
    for (int32_t r = 0; r < rank->group->num_ranks; r++)
        in[r] = places[r].in;
    cpu_group_add_rows(in, rank->group->num_ranks, num_rows, sums);
    meet(rank);
}

static const struct cpu_group_ops memory_ops = {.all_reduce = all_reduce,
                                                .gather_columns = gather_columns,
                                                .gather = gather,
                                                .broadcast = broadcast,
                                                .sum_rows = sum_rows};

int cpu_group_create(int32_t num_ranks, struct backend_group **out, struct error *err) {
    struct memory_group *group = aligned_alloc(CPU_GROUP_LINE, sizeof(*group));
    if (group == NULL)
        return error_set(err, ERROR_MEMORY, "out of memory for a group of %d ranks", num_ranks);
    memset(group, 0, sizeof(*group));
    group->base = (struct backend_group){
        .destroy = destroy, .ops = &memory_ops, .num_ranks = num_ranks, .only_rank = -1};
    group->spin_ns = num_ranks <= cores_available() ? SPIN_WAIT_NS : 0;
    *out = &group->base;
    return 0;
}
