/* Groups of ranks that send one another messages, of which this process has one. A sum is cut into
 * the slices that threads take of it (cpu_group_memory.c): each rank gets everyone's part of its
 * own slice, adds them up in the order of the ranks, and sends the others the result. Where that
 * carries no less, or so little that its second round takes longer, each gets all and adds it up.
 *
 * The first failure is kept; after it nothing is sent, received or waited for. */
#include "config/base/check.h"
#include "config/base/clock.h"
#include "config/base/numbers.h"
#include "kernels/cpu/ranks/cpu_group_private.h"
#include "kernels/cpu/memory/cpu_memory.h"
#include "kernels/transport.h"

#include <stdlib.h>
#include <string.h>

#define MAX_OTHERS (BACKEND_MAX_RANKS - 1)
#define WHOLE_FLOATS 2048 /* of a sum whose parts are sent whole, of more than two ranks */

struct messages_group {
    struct backend_group base;
    struct transport *transport;
    int32_t first_rank;     /* of the transport's, that is rank 0 of the group */
    struct buffer received; /* of the other ranks in one op */
};

static struct messages_group *group_of(const struct cpu_rank *rank) {
    return (struct messages_group *)rank->group;
}

static void destroy(struct backend_group *base) {
    cpu_memory_free(&((struct messages_group *)base)->received);
    free(base);
}

/* Of the other ranks in one op: their slices of the largest sum, their columns of the logits, which
 * rank 0 gets, or their sums of rows. */
static size_t receive_bytes(const struct messages_group *group,
                            const struct serving_limits *limits) {
    size_t num_ranks = (size_t)group->base.num_ranks, rows = (size_t)limits->max_num_batched_tokens;
    int64_t num_floats = (int64_t)rows * limits->hidden_size;
    int32_t rank = group->base.only_rank;
    size_t slice = (size_t)(cpu_group_slice(num_floats, rank + 1, (int32_t)num_ranks) -
                            cpu_group_slice(num_floats, rank, (int32_t)num_ranks));
    size_t whole = num_ranks == 2 ? (size_t)num_floats : WHOLE_FLOATS;
    size_t logits = rank == 0 ? (size_t)limits->max_logit_rows * (size_t)limits->vocab_size : 0;
    size_t of_sums = (num_ranks - 1) * max_size(slice, whole) * sizeof(float);
    size_t of_rows = (num_ranks - 1) * rows * sizeof(double);
    return max_size(max_size(of_sums, of_rows), logits * sizeof(float));
}

static int open_rank(struct backend_group *base, const struct serving_limits *limits,
                     struct error *err) {
    struct messages_group *group = (struct messages_group *)base;
    cpu_memory_free(&group->received); /* of one that was opened and closed */
    return cpu_memory_alloc(receive_bytes(group, limits), &group->received, err);
}

/* Returns where the others' part of an op is received. */
static void *receive_memory(const struct cpu_rank *rank, size_t bytes) {
    struct messages_group *group = group_of(rank);
    CHECK(bytes <= group->received.bytes);
    return group->received.data;
}

/* --- Rounds of messages --- */

/* Messages that are under way together. */
struct round {
    struct messages_group *group;
    struct backend_group_traffic *traffic; /* of this rank */
    int64_t start_ns;
    struct transport_request *requests[2 * MAX_OTHERS];
    int32_t ranks[2 * MAX_OTHERS];
    int count;
};

static struct round round_start(const struct cpu_rank *rank) {
    return (struct round){
        .group = group_of(rank), .traffic = cpu_group_traffic(rank), .start_ns = clock_now_ns()};
}

static void round_add(struct round *round, int32_t rank, struct transport_request *request) {
    if (request == NULL)
        return;
    round->requests[round->count] = request;
    round->ranks[round->count++] = round->group->first_rank + rank;
}

/* Nothing is nothing on both sides. */
static bool is_needless(const struct round *round, size_t bytes) {
    return bytes == 0 || round->group->base.failure.code != ERROR_NONE;
}

static void round_send(struct round *round, int32_t rank, const void *data, size_t bytes) {
    struct messages_group *group = round->group;
    if (is_needless(round, bytes))
        return;
    round_add(round, rank,
              group->transport->ops->send(group->transport, TRANSPORT_SUMS,
                                          group->first_rank + rank, data, bytes,
                                          &group->base.failure));
    round->traffic->bytes_sent += bytes;
}

static void round_receive(struct round *round, int32_t rank, void *data, size_t bytes) {
    struct messages_group *group = round->group;
    if (is_needless(round, bytes))
        return;
    round_add(round, rank,
              group->transport->ops->receive(group->transport, TRANSPORT_SUMS,
                                             group->first_rank + rank, data, bytes,
                                             &group->base.failure));
    round->traffic->bytes_received += bytes;
}

/* Returns whether all messages are done. */
static bool round_end(struct round *round) {
    struct backend_group *group = &round->group->base;
    if (group->failure.code == ERROR_NONE)
        transport_wait(round->group->transport, round->requests, round->ranks, round->count,
                       &group->failure);
    round->traffic->wait_ns += clock_now_ns() - round->start_ns;
    return group->failure.code == ERROR_NONE;
}

/* --- The ops --- */

/* Returns the i-th of the other ranks, each rank beginning with the one after it, so that not all
 * send to the same one. */
static int32_t other_rank(const struct cpu_rank *rank, int32_t i) {
    return (rank->rank + 1 + i) % rank->group->num_ranks;
}

/* Sends each other rank the part of its slice, receives theirs of this rank's, and names all. */
static bool exchange_parts(const struct cpu_rank *rank, const struct all_reduce_args *args,
                           struct cpu_slice_sum *sum) {
    int32_t num_ranks = rank->group->num_ranks;
    int64_t n = (int64_t)args->num_rows * args->width;
    const float *x = args->x;
    float *received =
        receive_memory(rank, (size_t)(num_ranks - 1) * (size_t)sum->count * sizeof(float));
    struct round round = round_start(rank);
    for (int32_t i = 0; i < num_ranks - 1; i++, received += sum->count) {
        int32_t other = other_rank(rank, i);
        int64_t first = cpu_group_slice(n, other, num_ranks);
        int64_t end = cpu_group_slice(n, other + 1, num_ranks);
        round_receive(&round, other, received, (size_t)sum->count * sizeof(float));
        round_send(&round, other, x + first, (size_t)(end - first) * sizeof(float));
        sum->in[other] = received;
    }
    sum->in[rank->rank] = x + cpu_group_slice(n, rank->rank, num_ranks);
    return round_end(&round);
}

static void exchange_sums(const struct cpu_rank *rank, const struct all_reduce_args *args,
                          const struct cpu_slice_sum *sum) {
    int32_t num_ranks = rank->group->num_ranks;
    int64_t n = (int64_t)args->num_rows * args->width;
    float *out = args->out;
    struct round round = round_start(rank);
    for (int32_t i = 0; i < num_ranks - 1; i++) {
        int32_t other = other_rank(rank, i);
        int64_t first = cpu_group_slice(n, other, num_ranks);
        int64_t end = cpu_group_slice(n, other + 1, num_ranks);
        round_receive(&round, other, out + first, (size_t)(end - first) * sizeof(float));
        round_send(&round, other, sum->out[0], (size_t)sum->count * sizeof(float));
    }
    round_end(&round);
}

static void sum_slices(const struct cpu_rank *rank, const struct all_reduce_args *args) {
    int32_t num_ranks = rank->group->num_ranks;
    int64_t n = (int64_t)args->num_rows * args->width;
    int64_t first = cpu_group_slice(n, rank->rank, num_ranks);
    struct cpu_slice_sum sum = {.num_in = num_ranks,
                                .out = {(float *)args->out + first},
                                .num_out = 1,
                                .added = args->accumulate ? (const float *)args->out + first : NULL,
                                .count = cpu_group_slice(n, rank->rank + 1, num_ranks) - first};
    if (!exchange_parts(rank, args, &sum))
        return;
    cpu_group_sum_slice(rank, &sum);
    exchange_sums(rank, args, &sum);
}

static void sum_whole(const struct cpu_rank *rank, const struct all_reduce_args *args) {
    int32_t num_ranks = rank->group->num_ranks;
    int64_t n = (int64_t)args->num_rows * args->width;
    size_t bytes = (size_t)n * sizeof(float);
    struct cpu_slice_sum sum = {.num_in = num_ranks,
                                .out = {args->out},
                                .num_out = 1,
                                .added = args->accumulate ? args->out : NULL,
                                .count = n};
    float *received = receive_memory(rank, (size_t)(num_ranks - 1) * bytes);
    struct round round = round_start(rank);
    for (int32_t i = 0; i < num_ranks - 1; i++, received += n) {
        int32_t other = other_rank(rank, i);
        round_receive(&round, other, received, bytes);
        round_send(&round, other, args->x, bytes);
        sum.in[other] = received;
    }
    sum.in[rank->rank] = args->x;
    if (round_end(&round))
        cpu_group_sum_slice(rank, &sum);
}

static void all_reduce(const struct cpu_rank *rank, const struct all_reduce_args *args) {
    if (rank->group->num_ranks == 2 || (int64_t)args->num_rows * args->width <= WHOLE_FLOATS)
        sum_whole(rank, args);
    else
        sum_slices(rank, args);
}

static bool receive_widths(const struct cpu_rank *rank, int32_t *widths) {
    struct round round = round_start(rank);
    for (int32_t r = 1; r < rank->group->num_ranks; r++)
        round_receive(&round, r, &widths[r], sizeof(widths[r]));
    return round_end(&round);
}

static size_t sum_lengths(const int32_t *lengths, int32_t num_rows, int32_t width) {
    size_t sum = 0;
    if (lengths == NULL)
        return (size_t)num_rows * (size_t)width;
    for (int32_t row = 0; row < num_rows; row++)
        sum += (size_t)lengths[row];
    return sum;
}

/* Fills in where each rank's columns come from. lengths: of each rank, or NULL. */
static bool receive_columns(const struct cpu_rank *rank, int32_t num_rows, const int32_t *lengths,
                            struct cpu_columns *columns) {
    size_t counts[BACKEND_MAX_RANKS] = {0}, num_floats = 0;
    for (int32_t r = 1; r < rank->group->num_ranks; r++) {
        columns[r].lengths = lengths != NULL ? lengths + (size_t)r * (size_t)num_rows : NULL;
        counts[r] = sum_lengths(columns[r].lengths, num_rows, (int32_t)columns[r].width);
        num_floats += counts[r];
    }
    float *received = receive_memory(rank, num_floats * sizeof(float));
    struct round round = round_start(rank);
    for (int32_t r = 1; r < rank->group->num_ranks; received += counts[r++]) {
        round_receive(&round, r, received, counts[r] * sizeof(float));
        columns[r].from = received;
    }
    return round_end(&round);
}

/* A rank's width comes before its columns: four bytes once a step, and nothing to keep. */
static void send_columns(const struct cpu_rank *rank, const struct gather_columns_args *args,
                         const int32_t *lengths) {
    struct round round = round_start(rank);
    round_send(&round, 0, &args->width, sizeof(args->width));
    round_send(&round, 0, args->x,
               sum_lengths(lengths, args->num_rows, args->width) * sizeof(float));
    round_end(&round);
}

static void gather_columns(const struct cpu_rank *rank, const struct gather_columns_args *args,
                           const int32_t *lengths) {
    if (rank->rank > 0) {
        send_columns(rank, args, lengths);
        return;
    }
    int32_t widths[BACKEND_MAX_RANKS] = {args->width}, num_ranks = rank->group->num_ranks;
    struct cpu_columns columns[BACKEND_MAX_RANKS] = {{.from = args->x, .lengths = lengths}};
    size_t stride = 0;
    if (!receive_widths(rank, widths))
        return;
    for (int32_t r = 0; r < num_ranks; stride += (size_t)widths[r++]) {
        columns[r].to = args->out + stride;
        columns[r].width = (size_t)widths[r];
        columns[r].num_rows = args->num_rows;
    }
    if (!receive_columns(rank, args->num_rows, lengths, columns))
        return;
    for (int32_t r = 0; r < num_ranks; r++) {
        columns[r].stride = stride;
        cpu_group_copy_columns(rank, &columns[r]);
    }
}

static void gather(const struct cpu_rank *rank, const void *own, size_t bytes, void *out) {
    struct round round = round_start(rank);
    if (rank->rank > 0)
        round_send(&round, 0, own, bytes);
    else
        memcpy(out, own, bytes);
    for (int32_t r = 1; rank->rank == 0 && r < rank->group->num_ranks; r++)
        round_receive(&round, r, (char *)out + (size_t)r * bytes, bytes);
    round_end(&round);
}

static void broadcast(const struct cpu_rank *rank, void *data, size_t bytes) {
    struct round round = round_start(rank);
    if (rank->rank > 0)
        round_receive(&round, 0, data, bytes);
    for (int32_t r = 1; rank->rank == 0 && r < rank->group->num_ranks; r++)
        round_send(&round, r, data, bytes);
    round_end(&round);
}

static void sum_rows(const struct cpu_rank *rank, int32_t num_rows, const double *own,
                     double *sums) {
    int32_t num_ranks = rank->group->num_ranks;
    size_t bytes = (size_t)num_rows * sizeof(double);
    const double *in[BACKEND_MAX_RANKS];
    double *received = receive_memory(rank, (size_t)(num_ranks - 1) * bytes);
    struct round round = round_start(rank);
    for (int32_t i = 0; i < num_ranks - 1; i++, received += num_rows) {
        int32_t other = other_rank(rank, i);
        round_receive(&round, other, received, bytes);
        round_send(&round, other, own, bytes);
        in[other] = received;
    }
    in[rank->rank] = own;
    if (round_end(&round))
        cpu_group_add_rows(in, num_ranks, num_rows, sums);
}

static const struct cpu_group_ops messages_ops = {.open_rank = open_rank,
                                                  .all_reduce = all_reduce,
                                                  .gather_columns = gather_columns,
                                                  .gather = gather,
                                                  .broadcast = broadcast,
                                                  .sum_rows = sum_rows};

int cpu_group_create_remote(struct transport *transport, int32_t first_rank, int32_t num_ranks,
                            struct backend_group **out, struct error *err) {
    int32_t rank = transport->rank - first_rank;
    CHECK(rank >= 0 && rank < num_ranks && first_rank + num_ranks <= transport->num_ranks);
    struct messages_group *group = aligned_alloc(BACKEND_GROUP_LINE, sizeof(*group));
    if (group == NULL)
        return error_set(err, ERROR_MEMORY, "out of memory for a group of %d ranks", num_ranks);
    memset(group, 0, sizeof(*group));
    group->base = (struct backend_group){
        .destroy = destroy, .ops = &messages_ops, .num_ranks = num_ranks, .only_rank = rank};
    group->transport = transport;
    group->first_rank = first_rank;
    *out = &group->base;
    return 0;
}
