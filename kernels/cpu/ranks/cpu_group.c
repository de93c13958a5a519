#include "kernels/cpu/ranks/cpu_group_private.h"

#include "config/base/check.h"
#include "config/base/numbers.h"
#include "kernels/cpu/memory/cpu_memory.h"

#include <string.h>

#define LINE_FLOATS (CPU_GROUP_LINE / (int)sizeof(float))
#define TILE_FLOATS (16 * LINE_FLOATS) /* summed at a time, in registers or L1 */
#define CHUNK_TILES 16                 /* handed to a thread at a time */
#define CHUNK_FLOATS 16384             /* floats per chunk */

/* --- Ranks --- */

static int check_rank(const struct backend_group *group, int32_t rank, struct error *err) {
    if (rank < 0 || rank >= group->num_ranks)
        return error_set(err, ERROR_CONFIG, "rank %d: the group has 0 to %d", rank,
                         group->num_ranks - 1);
    if (group->only_rank >= 0 && rank != group->only_rank)
        return error_set(err, ERROR_CONFIG, "rank %d: this process is rank %d", rank,
                         group->only_rank);
    return 0;
}

int cpu_rank_init(struct cpu_rank *out, const struct backend_config *config,
                  struct thread_pool *pool, struct error *err) {
    *out = (struct cpu_rank){
        .rank = config->rank, .pool = pool, .max_rows = config->limits.max_num_batched_tokens};
    if (config->group == NULL || config->group->num_ranks == 1)
        return 0;
    if (check_rank(config->group, config->rank, err) != 0)
        return -1;
    if (config->group->ops->open_rank != NULL &&
        config->group->ops->open_rank(config->group, &config->limits, err) != 0)
        return -1;
    out->group = config->group;
    return cpu_memory_alloc(2 * (size_t)out->max_rows * sizeof(double), &out->row_sums, err);
}

void cpu_rank_finish(struct cpu_rank *rank) {
    cpu_memory_free(&rank->row_sums);
}

int cpu_rank_status(const struct cpu_rank *rank, struct error *err) {
    if (rank->group == NULL || rank->group->failure.code == ERROR_NONE)
        return 0;
    if (err != NULL)
        *err = rank->group->failure;
    return -1;
}

/* --- The ops --- */

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
    if (rank->group == NULL)
        add_alone(args);
    else
        rank->group->ops->all_reduce(rank, args);
}

void cpu_group_gather_columns(const struct cpu_rank *rank, const struct gather_columns_args *args) {
    if (rank->group == NULL)
        memcpy(args->out, args->x, (size_t)args->num_rows * (size_t)args->width * sizeof(float));
    else
        rank->group->ops->gather_columns(rank, args, NULL);
}

void cpu_group_gather_beginnings(const struct cpu_rank *rank,
                                 const struct gather_columns_args *args, const int32_t *lengths) {
    rank->group->ops->gather_columns(rank, args, lengths);
}

void cpu_group_gather(const struct cpu_rank *rank, const void *own, size_t bytes, void *out) {
    rank->group->ops->gather(rank, own, bytes, out);
}

void cpu_group_broadcast(const struct cpu_rank *rank, void *data, size_t bytes) {
    rank->group->ops->broadcast(rank, data, bytes);
}

void cpu_group_share_samples(const struct cpu_rank *rank, const struct share_samples_args *args,
                             int32_t *sampled_tokens) {
    if (rank->group != NULL)
        rank->group->ops->broadcast(rank, sampled_tokens + args->first_row,
                                    (size_t)args->num_sample_rows * sizeof(*sampled_tokens));
}

const double *cpu_group_sum_rows(const struct cpu_rank *rank, int32_t num_rows) {
    CHECK(num_rows <= rank->max_rows);
    double *own = rank->row_sums.data, *sums = own + rank->max_rows;
    rank->group->ops->sum_rows(rank, num_rows, own, sums);
    return sums;
}

/* --- What all groups compute alike --- */

int64_t cpu_group_slice(int64_t n, int32_t rank, int32_t num_ranks) {
    int64_t num_lines = (n + LINE_FLOATS - 1) / LINE_FLOATS;
    return min_int64(num_lines * rank / num_ranks * LINE_FLOATS, n);
}

static void sum_tile(const struct cpu_slice_sum *job, int64_t first, int64_t count) {
    float sums[TILE_FLOATS];
    size_t bytes = (size_t)count * sizeof(float);
    memcpy(sums, job->in[0] + first, bytes);
    for (int32_t r = 1; r < job->num_in; r++) {
        const float *x = job->in[r] + first;
        for (int64_t i = 0; i < count; i++)
            sums[i] += x[i];
    }
    if (job->added != NULL) {
        const float *added = job->added + first;
        for (int64_t i = 0; i < count; i++)
            sums[i] = added[i] + sums[i];
    }
    for (int32_t r = 0; r < job->num_out; r++)
        memcpy(job->out[r] + first, sums, bytes);
}

static void sum_tiles(void *context, int64_t begin, int64_t end, int worker) {
    const struct cpu_slice_sum *job = context;
    for (int64_t tile = begin; tile < end; tile++)
        sum_tile(job, tile * TILE_FLOATS, min_int64(job->count - tile * TILE_FLOATS, TILE_FLOATS));
}

static void deal(const struct cpu_rank *rank, int64_t num_items, int64_t grain,
                 void (*body)(void *context, int64_t begin, int64_t end, int worker),
                 const void *job) {
    if (rank->pool != NULL)
        thread_pool_for(rank->pool, num_items, grain, body, (void *)job);
    else
        body((void *)job, 0, num_items, 0);
}

void cpu_group_sum_slice(const struct cpu_rank *rank, const struct cpu_slice_sum *sum) {
    deal(rank, (sum->count + TILE_FLOATS - 1) / TILE_FLOATS, CHUNK_TILES, sum_tiles, sum);
}

static void copy_rows(void *context, int64_t begin, int64_t end, int worker) {
    const struct cpu_columns *job = context;
    for (size_t row = (size_t)begin; row < (size_t)end; row++)
        memcpy(job->to + row * job->stride, job->from + row * job->width,
               job->width * sizeof(float));
}

static void copy_beginnings(const struct cpu_columns *job) {
    const float *from = job->from;
    for (int32_t row = 0; row < job->num_rows; from += job->lengths[row++])
        memcpy(job->to + (size_t)row * job->stride, from,
               (size_t)job->lengths[row] * sizeof(float));
}

void cpu_group_copy_columns(const struct cpu_rank *rank, const struct cpu_columns *columns) {
    if (columns->lengths != NULL)
        copy_beginnings(columns);
    else
        deal(rank, columns->num_rows, CHUNK_FLOATS / (int64_t)columns->width + 1, copy_rows,
             columns);
}

void cpu_group_add_rows(const double *const *in, int32_t num_ranks, int32_t num_rows,
                        double *sums) {
    for (int32_t row = 0; row < num_rows; row++) {
        sums[row] = 0;
        for (int32_t r = 0; r < num_ranks; r++)
            sums[row] += in[r][row];
    }
}
