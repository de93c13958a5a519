#include "engine/distributed_rank.h"

#include "config/base/clock.h"
#include "engine/executor/step_message.h"
#include "kernels/transport.h"

#include <stdlib.h>

#define STEP_ALIGNMENT 64 /* batch_arena_bind */

struct distributed_rank {
    struct transport *transport;
    struct executor *executor;
    void *memory; /* of a step */
    size_t bytes;
};

/* For the largest step so far. */
static int grow_memory(struct distributed_rank *rank, size_t bytes, struct error *err) {
    if (bytes <= rank->bytes)
        return 0;
    free(rank->memory);
    rank->memory = aligned_alloc(STEP_ALIGNMENT, bytes);
    rank->bytes = rank->memory != NULL ? bytes : 0;
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
    if (grow_memory(rank, step_memory_bytes(capacity), err) != 0 ||
        transport_receive(rank->transport, TRANSPORT_STEPS, 0, rank->memory,
                          batch_arena_bytes(capacity), err) != 0)
        return -1;
    step_memory_bind(capacity, rank->memory, &arena, &result);
    struct batch batch = batch_arena_view(&arena);
    ops->submit(rank->executor, &batch, &result);
    if (ops->wait(rank->executor, err) != 0)
        return -1;
    return message->kind == STEP_SAMPLE ? send_result(rank, capacity, err) : 0;
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
    switch (message.kind) {
    case STEP_COMPUTE:
    case STEP_SAMPLE:
        return compute(rank, &message, err) == 0 ? 1 : -1;
    case STEP_PING:
        return transport_send(t, TRANSPORT_STEPS, 0, "", 1, err) == 0 ? 1 : -1;
    default:
        return 0;
    }
}

int distributed_rank_run(const struct model *model, const struct executor_config *config,
                         void (*ready)(void *context, const struct executor_info *info),
                         void *context, struct error *err) {
    struct distributed_rank rank = {.transport = config->transport};
    struct executor_info info;
    if (executor_create(model, config, &info, &rank.executor, err) != 0)
        return -1;
    ready(context, &info);
    bool is_first = true;
    int status;
    while ((status = obey(&rank, is_first, err)) > 0)
        is_first = false;
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
