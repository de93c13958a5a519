#include "engine/distributed_rank.h"

#include "config/base/clock.h"
#include "engine/executor/step_message.h"
#include "kernels/transport.h"

#include <stdlib.h>

#define STEP_ALIGNMENT 64 /* batch_arena_bind */

struct distributed_rank {
    struct transport *transport;
    struct executor *executor;
    void *arena;
    size_t arena_bytes;
};

/* Of what rank 0 sends (batch_arena_shape) at most. */
static struct batch_capacity largest_step(const struct serving_limits *limits) {
    return (struct batch_capacity){
        .num_tokens = limits->max_num_batched_tokens,
        .num_seqs = limits->max_num_seqs,
        .num_table_blocks = serving_limits_max_blocks(limits),
        .num_sample_rows = serving_limits_max_sample_rows(limits),
        .num_blocks = limits->num_blocks,
        .num_host_blocks = limits->num_host_blocks,
    };
}

static int alloc_arena(struct distributed_rank *rank, const struct serving_limits *limits,
                       struct error *err) {
    const struct batch_capacity capacity = largest_step(limits);
    rank->arena_bytes = batch_arena_bytes(&capacity);
    rank->arena =
        rank->arena_bytes < SIZE_MAX ? aligned_alloc(STEP_ALIGNMENT, rank->arena_bytes) : NULL;
    return rank->arena != NULL ? 0 : error_set(err, ERROR_MEMORY, "no memory for a step");
}

/* Each step is computed to its end before the next is taken: meanwhile rank 0 says nothing else that
 * anybody waits for. */
static int compute(struct distributed_rank *rank, const struct batch_capacity *capacity,
                   struct error *err) {
    const struct executor_ops *ops = rank->executor->ops;
    struct step_result nothing = {0};
    struct batch_arena arena;
    size_t bytes = batch_arena_bytes(capacity);
    if (bytes > rank->arena_bytes)
        return error_set(err, ERROR_DEVICE, "rank 0 sends a step of %zu bytes, of at most %zu",
                         bytes, rank->arena_bytes);
    if (transport_receive(rank->transport, TRANSPORT_STEPS, 0, rank->arena, bytes, err) != 0)
        return -1;
    batch_arena_bind(&arena, capacity, rank->arena);
    struct batch batch = batch_arena_view(&arena);
    ops->submit(rank->executor, &batch, &nothing);
    return ops->wait(rank->executor, err);
}

static int send_stats(struct distributed_rank *rank, struct error *err) {
    struct rank_stats stats[BACKEND_MAX_RANKS];
    rank->executor->ops->rank_stats(rank->executor, stats);
    return transport_send(rank->transport, TRANSPORT_STEPS, 0, &stats[0], sizeof(stats[0]), err);
}

/* 1: goes on; 0: dismissed. Before the first message rank 0 has much to do that takes its time. */
static int obey(struct distributed_rank *rank, bool is_first, struct error *err) {
    struct transport *t = rank->transport;
    struct step_message message;
    int64_t timeout_ns = t->timeout_ns;
    t->timeout_ns = is_first ? 0 : timeout_ns;
    int status = transport_receive(t, TRANSPORT_STEPS, 0, &message, sizeof(message), err);
    t->timeout_ns = timeout_ns;
    if (status != 0)
        return -1;
    if (message.kind == STEP_QUIT)
        return 0;
    if ((message.kind == STEP_COMPUTE && compute(rank, &message.capacity, err) != 0) ||
        (message.wants_stats && send_stats(rank, err) != 0))
        return -1;
    return 1;
}

int distributed_rank_run(const struct model *model, const struct executor_config *config,
                         void (*ready)(void *context, const struct executor_info *info),
                         void *context, struct error *err) {
    struct distributed_rank rank = {.transport = config->transport};
    struct executor_info info;
    if (executor_create(model, config, &info, &rank.executor, err) != 0)
        return -1;
    if (alloc_arena(&rank, &info.limits, err) != 0)
        return -1;
    ready(context, &info);
    bool is_first = true;
    int status;
    while ((status = obey(&rank, is_first, err)) > 0)
        is_first = false;
    if (status == 0)
        rank.executor->ops->destroy(rank.executor);
    free(rank.arena);
    return status;
}

/* --- The way to the others ---------------------------------------------------------------------- */

int distributed_rank_open(int32_t timeout_s, struct transport **out, struct error *err) {
    *out = NULL;
    if (!transport_is_expected())
        return 0;
    if (transport_open(out, err) != 0)
        return -1;
    (*out)->timeout_ns = timeout_s * CLOCK_NS_PER_S;
    return 0;
}

int32_t distributed_rank_number(const struct transport *transport) {
    return transport->rank;
}

int32_t distributed_rank_count(const struct transport *transport) {
    return transport->num_ranks;
}

void distributed_rank_close(struct transport *transport) {
    transport->ops->destroy(transport);
}
