#include "kernels/cpu/cpu_group.h"

#include "config/base/check.h"
#include "config/base/cores.h"
#include "config/base/numbers.h"
#include "kernels/cpu/cpu_memory.h"
#include "kernels/cpu/spin_wait.h"

#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

#define CACHE_LINE 64
#define LINE_FLOATS (CACHE_LINE / (int)sizeof(float)) /* a slice begins at a line: none is shared */
#define TILE_LINES 16                                 /* summed at a time, in registers or L1 */
#define CHUNK_TILES 16                                /* handed to a thread at a time */
#define CHUNK_FLOATS 16384                            /* likewise */

/* What a rank publishes for one op. */
struct place {
    alignas(CACHE_LINE) const void *in;
    void *out;
    int32_t width;
};

struct backend_group {
    int32_t num_ranks;
    int64_t spin_ns;
    alignas(CACHE_LINE) atomic_uint num_there;
    alignas(CACHE_LINE) atomic_uint num_meetings; /* word that those who wait look at */
    atomic_int num_sleepers;
    struct place places[BACKEND_MAX_RANKS];
};

int backend_group_create(const char *device, int32_t num_ranks, struct backend_group **out,
                         struct error *err) {
    bool is_cpu = strcmp(device, "cpu") == 0 || strcmp(device, "cpu-ref") == 0;
    if (num_ranks < 1 || num_ranks > BACKEND_MAX_RANKS)
        return error_set(err, ERROR_CONFIG, "%d ranks: must be 1 to %d", num_ranks,
                         BACKEND_MAX_RANKS);
    if (num_ranks > 1 && !is_cpu)
        return error_set(err, ERROR_CONFIG,
                         "%d ranks: only the CPU computes a model in several ranks; on %s it must "
                         "be 1",
                         num_ranks, device);
    struct backend_group *group = aligned_alloc(CACHE_LINE, sizeof(*group));
    if (group == NULL)
        return error_set(err, ERROR_MEMORY, "out of memory for a group of %d ranks", num_ranks);
    memset(group, 0, sizeof(*group));
    group->num_ranks = num_ranks;
    group->spin_ns = num_ranks <= cores_available() ? SPIN_WAIT_NS : 0;
    *out = group;
    return 0;
}

void backend_group_destroy(struct backend_group *group) {
    free(group);
}

int cpu_rank_init(struct cpu_rank *out, const struct backend_config *config,
                  struct thread_pool *pool, struct error *err) {
    *out = (struct cpu_rank){
        .rank = config->rank, .pool = pool, .max_rows = config->limits.max_num_batched_tokens};
    if (config->group == NULL || config->group->num_ranks == 1)
        return 0;
    if (config->rank < 0 || config->rank >= config->group->num_ranks)
        return error_set(err, ERROR_CONFIG, "rank %d: the group has 0 to %d", config->rank,
                         config->group->num_ranks - 1);
    out->group = config->group;
    return cpu_memory_alloc(2 * (size_t)out->max_rows * sizeof(double), &out->row_sums, err);
}

void cpu_rank_finish(struct cpu_rank *rank) {
    cpu_memory_free(&rank->row_sums);
}

/* Returns when every rank is here; what each has written before, all see after. */
static void meet(struct backend_group *group) {
    unsigned seen = atomic_load(&group->num_meetings);
    if (atomic_fetch_add(&group->num_there, 1) + 1 == (unsigned)group->num_ranks) {
        atomic_store(&group->num_there, 0);
        atomic_fetch_add(&group->num_meetings, 1);
        if (atomic_load(&group->num_sleepers) > 0)
            spin_wait_wake_all(&group->num_meetings);
        return;
    }
    if (spin_wait_until(&group->num_meetings, spin_wait_differs, seen, group->spin_ns))
        return;
    atomic_fetch_add(&group->num_sleepers, 1);
    while (atomic_load(&group->num_meetings) == seen)
        spin_wait_sleep(&group->num_meetings, seen);
    atomic_fetch_sub(&group->num_sleepers, 1);
}

/* Publishes what this rank brings and returns what all of them do. They stay until the caller and
 * the others have met once more. */
static const struct place *bring(const struct cpu_rank *rank, const void *in, void *out,
                                 int32_t width) {
    rank->group->places[rank->rank] = (struct place){.in = in, .out = out, .width = width};
    meet(rank->group);
    return rank->group->places;
}

/* --- all_reduce ------------------------------------------------------------------------------- */

struct reduction {
    const struct place *places;
    int32_t num_ranks, rank;
    int64_t first, end; /* of this rank's slice, in floats */
    bool accumulate;
};

static void reduce_tile(const struct reduction *job, int64_t first, int64_t count) {
    float sums[TILE_LINES * LINE_FLOATS];
    size_t bytes = (size_t)count * sizeof(float);
    memcpy(sums, (const float *)job->places[0].in + first, bytes);
    for (int32_t r = 1; r < job->num_ranks; r++) {
        const float *x = (const float *)job->places[r].in + first;
        for (int64_t i = 0; i < count; i++)
            sums[i] += x[i];
    }
    if (job->accumulate) {
        const float *out = (const float *)job->places[job->rank].out + first;
        for (int64_t i = 0; i < count; i++)
            sums[i] = out[i] + sums[i];
    }
    for (int32_t r = 0; r < job->num_ranks; r++)
        memcpy((float *)job->places[r].out + first, sums, bytes);
}

static void reduce_tiles(void *context, int64_t begin, int64_t end, int worker) {
    const struct reduction *job = context;
    for (int64_t tile = begin; tile < end; tile++) {
        int64_t first = job->first + tile * TILE_LINES * LINE_FLOATS, left = job->end - first;
        reduce_tile(job, first, left < TILE_LINES * LINE_FLOATS ? left : TILE_LINES * LINE_FLOATS);
    }
}

/* The first float of a rank's slice of n. */
static int64_t slice_start(int64_t n, int32_t rank, int32_t num_ranks) {
    int64_t num_lines = (n + LINE_FLOATS - 1) / LINE_FLOATS;
    int64_t start = num_lines * rank / num_ranks * LINE_FLOATS;
    return start < n ? start : n;
}

static void add_alone(const struct all_reduce_args *args) {
    size_t n = (size_t)args->num_rows * (size_t)args->width;
    const float *x = args->x;
    float *out = args->out;
    if (!args->accumulate && out != x)
        memcpy(out, x, n * sizeof(float));
    for (size_t i = 0; args->accumulate && i < n; i++)
        out[i] += x[i];
}

void cpu_group_all_reduce(const struct cpu_rank *rank, const struct all_reduce_args *args) {
    if (rank->group == NULL) {
        add_alone(args);
        return;
    }
    int32_t num_ranks = rank->group->num_ranks;
    int64_t n = (int64_t)args->num_rows * args->width;
    struct reduction job = {.places = bring(rank, args->x, args->out, args->width),
                            .num_ranks = num_ranks,
                            .rank = rank->rank,
                            .first = slice_start(n, rank->rank, num_ranks),
                            .end = slice_start(n, rank->rank + 1, num_ranks),
                            .accumulate = args->accumulate};
    int64_t num_tiles =
        (job.end - job.first + TILE_LINES * LINE_FLOATS - 1) / (TILE_LINES * LINE_FLOATS);
    if (rank->pool != NULL)
        thread_pool_for(rank->pool, num_tiles, CHUNK_TILES, reduce_tiles, &job);
    else
        reduce_tiles(&job, 0, num_tiles, 0);
    meet(rank->group);
}

/* --- The others ------------------------------------------------------------------------------- */

struct gathering {
    const float *from; /* rows of `width` */
    float *to;         /* the first row's place */
    size_t width, stride;
};

static void gather_rows(void *context, int64_t begin, int64_t end, int worker) {
    const struct gathering *job = context;
    for (size_t row = (size_t)begin; row < (size_t)end; row++)
        memcpy(job->to + row * job->stride, job->from + row * job->width,
               job->width * sizeof(float));
}

/* Each rank writes its columns into the rows of rank 0. */
void cpu_group_gather_columns(const struct cpu_rank *rank, const struct gather_columns_args *args) {
    size_t width = (size_t)args->width;
    if (rank->group == NULL) {
        memcpy(args->out, args->x, (size_t)args->num_rows * width * sizeof(float));
        return;
    }
    const struct place *places = bring(rank, args->x, args->out, args->width);
    struct gathering job = {.from = args->x, .width = width};
    for (int32_t r = 0; r < rank->group->num_ranks; r++) {
        if (r == rank->rank)
            job.to = (float *)places[0].out + job.stride;
        job.stride += (size_t)places[r].width;
    }
    if (rank->pool != NULL)
        thread_pool_for(rank->pool, args->num_rows, CHUNK_FLOATS / args->width + 1, gather_rows,
                        &job);
    else
        gather_rows(&job, 0, args->num_rows, 0);
    meet(rank->group);
}

void cpu_group_share_samples(const struct cpu_rank *rank, const struct share_samples_args *args,
                             int32_t *sampled_tokens) {
    if (rank->group == NULL)
        return;
    const struct place *places = bring(rank, sampled_tokens, NULL, 0);
    if (rank->rank > 0)
        memcpy(sampled_tokens + args->first_row, (const int32_t *)places[0].in + args->first_row,
               (size_t)args->num_sample_rows * sizeof(int32_t));
    meet(rank->group);
}

const double *cpu_group_sum_rows(const struct cpu_rank *rank, int32_t num_rows) {
    CHECK(num_rows <= rank->max_rows);
    double *own = rank->row_sums.data, *sums = own + rank->max_rows;
    const struct place *places = bring(rank, own, NULL, 0);
    for (int32_t row = 0; row < num_rows; row++) {
        sums[row] = 0;
        for (int32_t r = 0; r < rank->group->num_ranks; r++)
            sums[row] += ((const double *)places[r].in)[row];
    }
    meet(rank->group);
    return sums;
}
