/* Pipelines whose stages are threads of one process: a stage publishes the address of its rows, the
 * next one copies them, and then the first continues. */
#include "config/base/check.h"
#include "config/base/cores.h"
#include "kernels/cpu/ranks/cpu_pipeline.h"
#include "kernels/spin_wait.h"

#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

#define LINE 64 /* bytes of a cache line */

/* A count, and those who sleep until it changes. */
struct counter {
    alignas(LINE) atomic_uint count;
    atomic_int num_sleepers;
};

/* Between a rank of a stage and that of the next. */
struct link {
    struct counter num_sent, num_received;
    const void *data; /* of the message that is sent and not received */
    size_t bytes;
};

struct memory_pipeline {
    struct backend_pipeline base;
    int64_t spin_ns;
    struct link links[BACKEND_MAX_RANKS]; /* by the sender: stage * num_ranks + rank */
};

static void destroy(struct backend_pipeline *pipeline) {
    free(pipeline);
}

static struct memory_pipeline *pipeline_of(const struct cpu_stage *stage) {
    return (struct memory_pipeline *)stage->pipeline;
}

static struct link *link_from(const struct cpu_stage *stage, int32_t sender) {
    return &pipeline_of(stage)->links[sender * stage->pipeline->num_ranks + stage->rank];
}

static void advance(struct counter *counter) {
    atomic_fetch_add(&counter->count, 1);
    if (atomic_load(&counter->num_sleepers) > 0)
        spin_wait_wake_all(&counter->count);
}

static void await_change(struct counter *counter, unsigned seen, int64_t spin_ns) {
    if (spin_wait_until(&counter->count, spin_wait_differs, seen, spin_ns))
        return;
    atomic_fetch_add(&counter->num_sleepers, 1);
    while (atomic_load(&counter->count) == seen)
        spin_wait_sleep(&counter->count, seen);
    atomic_fetch_sub(&counter->num_sleepers, 1);
}

static void send(const struct cpu_stage *stage, const void *data, size_t bytes) {
    struct link *link = link_from(stage, stage->stage);
    unsigned num_received = atomic_load(&link->num_received.count);
    link->data = data;
    link->bytes = bytes;
    advance(&link->num_sent);
    await_change(&link->num_received, num_received, pipeline_of(stage)->spin_ns);
}

/* Only this rank counts what is received, and there is at most one message. */
static void receive(const struct cpu_stage *stage, void *data, size_t bytes) {
    struct link *link = link_from(stage, stage->stage - 1);
    await_change(&link->num_sent, atomic_load(&link->num_received.count),
                 pipeline_of(stage)->spin_ns);
    CHECK(link->bytes == bytes);
    memcpy(data, link->data, bytes);
    advance(&link->num_received);
}

static const struct cpu_pipeline_ops memory_ops = {.send = send, .receive = receive};

int cpu_pipeline_create(int32_t num_stages, int32_t num_ranks, struct backend_pipeline **out,
                        struct error *err) {
    struct memory_pipeline *pipeline = aligned_alloc(LINE, sizeof(*pipeline));
    if (pipeline == NULL)
        return error_set(err, ERROR_MEMORY, "out of memory for a pipeline of %d stages",
                         num_stages);
    memset(pipeline, 0, sizeof(*pipeline));
    pipeline->base = (struct backend_pipeline){.destroy = destroy,
                                               .ops = &memory_ops,
                                               .num_stages = num_stages,
                                               .num_ranks = num_ranks,
                                               .only_stage = -1,
                                               .only_rank = -1};
    pipeline->spin_ns = num_stages * num_ranks <= cores_available() ? SPIN_WAIT_NS : 0;
    *out = &pipeline->base;
    return 0;
}
