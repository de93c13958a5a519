#include "kernels/cpu/ranks/cpu_pipeline.h"

#include "config/base/check.h"
#include "config/base/clock.h"

#include <string.h>

int cpu_pipeline_check(const char *device, int32_t num_stages, int32_t num_ranks,
                       struct error *err) {
    bool is_cpu = strcmp(device, "cpu") == 0 || strcmp(device, "cpu-ref") == 0;
    if (num_stages < 1 || num_ranks < 1 || num_ranks > BACKEND_MAX_RANKS ||
        num_stages > BACKEND_MAX_RANKS / num_ranks)
        return error_set(err, ERROR_CONFIG,
                         "%d stages of %d ranks: must be 1 to %d stages, and at most %d ranks in "
                         "all",
                         num_stages, num_ranks, BACKEND_MAX_RANKS, BACKEND_MAX_RANKS);
    if (num_stages > 1 && !is_cpu)
        return error_set(err, ERROR_CONFIG,
                         "%d stages: only the CPU computes a model in several stages; on %s it "
                         "must be 1",
                         num_stages, device);
    return 0;
}

void backend_pipeline_get_traffic(const struct backend_pipeline *pipeline, int32_t stage,
                                  int32_t rank, struct backend_group_traffic *out) {
    *out = pipeline->traffic[stage * pipeline->num_ranks + rank];
}

void backend_pipeline_destroy(struct backend_pipeline *pipeline) {
    if (pipeline != NULL)
        pipeline->ops->destroy(pipeline);
}

/* --- One end --- */

static bool is_of_this_process(const struct backend_pipeline *pipeline, int32_t stage,
                               int32_t rank) {
    return pipeline->only_stage < 0 ||
           (stage == pipeline->only_stage && rank == pipeline->only_rank);
}

int cpu_stage_init(struct cpu_stage *out, const struct backend_config *config, struct error *err) {
    const struct backend_pipeline *pipeline = config->pipeline;
    int32_t stage = config->stage, rank = config->rank;
    *out = (struct cpu_stage){.pipeline = config->pipeline, .stage = stage, .rank = rank};
    if (pipeline == NULL)
        return 0;
    if (stage < 0 || stage >= pipeline->num_stages || rank < 0 || rank >= pipeline->num_ranks)
        return error_set(err, ERROR_CONFIG, "rank %d of stage %d: there are %d stages of %d", rank,
                         stage, pipeline->num_stages, pipeline->num_ranks);
    if (!is_of_this_process(pipeline, stage, rank))
        return error_set(err, ERROR_CONFIG, "rank %d of stage %d: this process is rank %d of %d",
                         rank, stage, pipeline->only_rank, pipeline->only_stage);
    return 0;
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
