/* Pipelines whose stages send one another messages, of which this process has one rank. The first
 * failure is kept; after it nothing is sent, received or waited for. */
#include "config/base/check.h"
#include "kernels/cpu/ranks/cpu_pipeline.h"
#include "kernels/transport.h"

#include <stdlib.h>

struct messages_pipeline {
    struct backend_pipeline base;
    struct transport *transport;
};

static void destroy(struct backend_pipeline *pipeline) {
    free(pipeline);
}

static struct transport *transport_of(const struct cpu_stage *stage) {
    return ((struct messages_pipeline *)stage->pipeline)->transport;
}

static void send(const struct cpu_stage *stage, const void *data, size_t bytes) {
    struct transport *t = transport_of(stage);
    struct error *failure = &stage->pipeline->failure;
    if (failure->code == ERROR_NONE)
        transport_send(t, TRANSPORT_STAGES, t->rank + stage->pipeline->num_ranks, data, bytes,
                       failure);
}

static void receive(const struct cpu_stage *stage, void *data, size_t bytes) {
    struct transport *t = transport_of(stage);
    struct error *failure = &stage->pipeline->failure;
    if (failure->code == ERROR_NONE)
        transport_receive(t, TRANSPORT_STAGES, t->rank - stage->pipeline->num_ranks, data, bytes,
                          failure);
}

static const struct cpu_pipeline_ops messages_ops = {.send = send, .receive = receive};

int cpu_pipeline_create_remote(struct transport *transport, int32_t num_stages, int32_t num_ranks,
                               struct backend_pipeline **out, struct error *err) {
    CHECK(num_stages * num_ranks == transport->num_ranks);
    struct messages_pipeline *pipeline = calloc(1, sizeof(*pipeline));
    if (pipeline == NULL)
        return error_set(err, ERROR_MEMORY, "out of memory for a pipeline of %d stages",
                         num_stages);
    pipeline->base = (struct backend_pipeline){.destroy = destroy,
                                               .ops = &messages_ops,
                                               .num_stages = num_stages,
                                               .num_ranks = num_ranks,
                                               .only_stage = transport->rank / num_ranks,
                                               .only_rank = transport->rank % num_ranks};
    pipeline->transport = transport;
    *out = &pipeline->base;
    return 0;
}
