#include "engine/executor/distributed_rank.h"

#include "config/base/clock.h"
#include "engine/executor/step_message.h"
#include "kernels/transport.h"

#include <stdlib.h>

#define STEP_ALIGNMENT 64 /* batch_arena_bind */

struct distributed_rank {
    struct transport *transport;
    struct executor *executor;
    void *memory; /* of the largest step */
    size_t bytes;
    bool has_begun;
};

static int alloc_memory(struct distributed_rank *rank, const struct batch_capacity *capacity,
                        struct error *err) {
    rank->bytes = step_memory_bytes(capacity);
    rank->memory = rank->bytes < SIZE_MAX ? aligned_alloc(STEP_ALIGNMENT, rank->bytes) : NULL;
    return rank->memory != NULL ? 0 : error_set(err, ERROR_MEMORY, "no memory for a step");
}

static int send_result(struct distributed_rank *rank, const struct batch_capacity *capacity,
                       struct error *err) {
    size_t offset = step_result_offset(capacity);
    return transport_send(rank->transport, TRANSPORT_STEPS, 0, (char *)rank->memory + offset,
                          step_memory_bytes(capacity) - offset, err);
}

/* Each step is computed to its end before the next is taken: meanwhile rank 0 says nothing else that
 * anybody waits for. */
static int compute(struct distributed_rank *rank, const struct step_message *message,
                   struct error *err) {
    const struct executor_ops *ops = rank->executor->ops;
    const struct batch_capacity *capacity = &message->capacity;
    struct step_result result;
    struct batch_arena arena;
    size_t bytes = step_memory_bytes(capacity);
    if (bytes > rank->bytes)
        return error_set(err, ERROR_DEVICE, "rank 0 sends a step of %zu bytes, of at most %zu",
                         bytes, rank->bytes);
    if (transport_receive(rank->transport, TRANSPORT_STEPS, 0, rank->memory,
                          batch_arena_bytes(capacity), err) != 0)
        return -1;
    step_memory_bind(capacity, rank->memory, &arena, &result);
    struct batch batch = batch_arena_view(&arena);
    ops->submit(rank->executor, &batch, &result);
    if (ops->wait(rank->executor, err) != 0)
        return -1;
    return message->kind == STEP_SAMPLE ? send_result(rank, capacity, err) : 0;
}

static int send_stats(struct distributed_rank *rank, struct error *err) {
    struct rank_stats stats[BACKEND_MAX_RANKS];
    rank->executor->ops->rank_stats(rank->executor, stats);
    return transport_send(rank->transport, TRANSPORT_STEPS, 0, &stats[0], sizeof(stats[0]), err);
}

/* Before the first step, or ping, rank 0 has much to do that takes its time. */
static int receive_message(struct distributed_rank *rank, struct step_message *out,
                           struct error *err) {
    struct transport *t = rank->transport;
    int64_t timeout_ns = t->timeout_ns;
    t->timeout_ns = rank->has_begun ? timeout_ns : 0;
    int status = transport_receive(t, TRANSPORT_STEPS, 0, out, sizeof(*out), err);
    t->timeout_ns = timeout_ns;
    rank->has_begun |= status == 0 && out->kind != STEP_MEMORY;
    return status;
}

/* 1: goes on; 0: dismissed. */
static int obey(struct distributed_rank *rank, struct error *err) {
    struct step_message message;
    if (receive_message(rank, &message, err) != 0)
        return -1;
    if (message.kind == STEP_QUIT)
        return 0;
    bool computes = message.kind == STEP_COMPUTE || message.kind == STEP_SAMPLE;
    if ((message.kind == STEP_MEMORY && alloc_memory(rank, &message.capacity, err) != 0) ||
        (computes && compute(rank, &message, err) != 0) ||
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
    ready(context, &info);
    int status;
    do
        status = obey(&rank, err);
    while (status > 0);
    if (status == 0)
        rank.executor->ops->destroy(rank.executor);
    free(rank.memory);
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
