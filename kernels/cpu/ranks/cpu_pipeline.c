#include "kernels/cpu/ranks/cpu_pipeline.h"

#include "config/base/check.h"
#include "config/base/clock.h"

int cpu_stage_init(struct cpu_stage *out, const struct backend_config *config, struct error *err) {
    const struct backend_pipeline *pipeline = config->pipeline;
    int32_t stage = config->stage, rank = config->rank;
    *out = (struct cpu_stage){.pipeline = config->pipeline, .stage = stage, .rank = rank};
    return pipeline == NULL ? 0 : backend_pipeline_check(pipeline, stage, rank, err);
}

int cpu_stage_status(const struct cpu_stage *stage, struct error *err) {
    if (stage->pipeline == NULL || stage->pipeline->failure.code == ERROR_NONE)
        return 0;
    if (err != NULL)
        *err = stage->pipeline->failure;
    return -1;
}

static size_t bytes_of(const struct stage_rows_args *args) {
    return (size_t)args->num_rows * (size_t)args->width * sizeof(float);
}

static struct backend_group_traffic *traffic_of(const struct cpu_stage *stage) {
    return &stage->pipeline->traffic[stage->stage * stage->pipeline->num_ranks + stage->rank];
}

/* Within a process nothing is sent. */
static size_t sent_bytes(const struct cpu_stage *stage, const struct stage_rows_args *args) {
    return stage->pipeline->only_stage < 0 ? 0 : bytes_of(args);
}

void cpu_stage_send(const struct cpu_stage *stage, const struct stage_rows_args *args) {
    CHECK(stage->pipeline != NULL && stage->stage + 1 < stage->pipeline->num_stages);
    struct backend_group_traffic *traffic = traffic_of(stage);
    int64_t start_ns = clock_now_ns();
    stage->pipeline->ops->send(stage, args->x, bytes_of(args));
    traffic->wait_ns += clock_now_ns() - start_ns;
    traffic->bytes_sent += sent_bytes(stage, args);
}

void cpu_stage_receive(const struct cpu_stage *stage, const struct stage_rows_args *args) {
    CHECK(stage->pipeline != NULL && stage->stage > 0);
    struct backend_group_traffic *traffic = traffic_of(stage);
    int64_t start_ns = clock_now_ns();
    stage->pipeline->ops->receive(stage, args->x, bytes_of(args));
    traffic->wait_ns += clock_now_ns() - start_ns;
    traffic->bytes_received += sent_bytes(stage, args);
}
