/* Recordings are CUDA graphs captured from the compute stream, marks are events with timing.
 *
 * A call that fails during the capture has run nothing on the device, so that its failure is the
 * recording's: it is kept as any other until `end`, for later ops to do nothing, and cleared there.
 * If the device failed meanwhile, the next call says so again. The runtime's own last error is read
 * then, or it would be blamed on the next kernel. */
#include "config/base/check.h"
#include "kernels/cuda/state/cuda_check.h"
#include "kernels/cuda/ranks/cuda_group.h"
#include "kernels/cuda/step/cuda_streams.h"
#include "kernels/cuda/step/cuda_staging.h"

#include <stdlib.h>

struct recording {
    struct cuda_graph graph;
    struct staging_set *staging; /* pinned memory of its copies */
    struct cuda_comm_work work;  /* of NCCL; until it ends, what was enqueued before */
    uint32_t plans;              /* of attention, which it reads */
    bool begins_step;
    bool touches_anything; /* cuda_streams.h */
};

struct mark {
    cudaEvent_t event;
};

static void record_free(struct backend *base, struct recording *recording) {
    struct cuda_backend *b = cuda_state_of(base);
    if (recording == NULL)
        return;
    cuda_attention_forget_recorded(b, recording->plans);
    cuda_graph_destroy(b, &recording->graph);
    cuda_staging_set_free(b, recording->staging);
    free(recording);
}

static int record_begin(struct backend *base, size_t host_bytes, struct error *err) {
    struct cuda_backend *b = cuda_state_of(base);
    CHECK(b->recording == NULL);
    if (!CUDA_OK(b))
        return error_set(err, b->failure.code, "%s", b->failure.message);
    cuda_streams_before_anything(b); /* the step begun last will not be known any more */
    struct recording *recording = calloc(1, sizeof(*recording));
    if (recording == NULL)
        return error_set(err, ERROR_MEMORY, "out of memory for a recording");
    if (cuda_staging_record(b, host_bytes, &recording->staging, err) != 0) {
        record_free(base, recording);
        return -1;
    }
    if (CUDA_START(cudaStreamBeginCapture(b->stream, cudaStreamCaptureModeThreadLocal), err) != 0) {
        cudaGetLastError();
        cuda_staging_record_end(b);
        record_free(base, recording);
        return -1;
    }
    b->recording = recording;
    b->captured = &recording->graph;
    recording->work = cuda_comm_work_of(b);
    b->step.is_recorded = false;
    return 0;
}

/* Always ends the capture, even after a failure in it. */
static int end_capture(struct cuda_backend *b, cudaGraph_t *out, struct error *err) {
    struct error failure = b->failure;
    b->failure = (struct error){0};
    int status = CUDA_START(cudaStreamEndCapture(b->stream, out), err);
    if (failure.code == ERROR_NONE)
        return status;
    if (status == 0)
        CUDA_RELEASE(b, cudaGraphDestroy(*out));
    return error_set(err, failure.code, "%s", failure.message);
}

static int instantiate(struct cuda_backend *b, struct recording *recording, struct error *err) {
    cudaGraph_t source;
    if (end_capture(b, &source, err) != 0)
        return -1;
    if (CUDA_START(cudaGraphInstantiate(&recording->graph.exec, source, 0), err) != 0) {
        CUDA_RELEASE(b, cudaGraphDestroy(source));
        return -1;
    }
    recording->graph.source = source;
    recording->graph.next = b->graphs;
    b->graphs = &recording->graph;
    /* Else the first launch does it: its step is slow, and memory is taken when all is shared
     * out. */
    return CUDA_START(cudaGraphUpload(recording->graph.exec, b->stream), err);
}

static int record_end(struct backend *base, struct recording **out, struct error *err) {
    struct cuda_backend *b = cuda_state_of(base);
    struct recording *recording = b->recording;
    CHECK(recording != NULL);
    b->recording = NULL;
    b->captured = NULL;
    cuda_staging_record_end(b);
    recording->work = cuda_comm_take_recorded(b, &recording->work);
    recording->plans = cuda_attention_take_recorded(b);
    recording->begins_step = b->step.is_recorded;
    recording->touches_anything = cuda_streams_end_recording(b);
    if (recording->begins_step)
        cuda_step_forget(b);
    if (instantiate(b, recording, err) != 0) {
        cudaGetLastError();
        record_free(base, recording);
        return -1;
    }
    *out = recording;
    return 0;
}

static void record_replay(struct backend *base, struct recording *recording) {
    struct cuda_backend *b = cuda_state_of(base);
    CHECK(b->recording == NULL);
    cuda_staging_promise(b, recording->staging);
    cuda_streams_before_replay(b, recording->touches_anything);
    cuda_attention_before_replay(b, recording->plans);
    cuda_graph_choose_wide_tiles(b, &recording->graph);
    if (recording->begins_step)
        cuda_step_forget(b);
    cuda_comm_count_replayed(b, &recording->work);
    CUDA_TRY(b, cudaGraphLaunch(recording->graph.exec, b->stream));
}

static int mark_create(struct backend *base, struct mark **out, struct error *err) {
    struct mark *mark = calloc(1, sizeof(*mark));
    if (mark == NULL)
        return error_set(err, ERROR_MEMORY, "out of memory for a mark");
    if (CUDA_START(cudaEventCreateWithFlags(&mark->event, cudaEventDefault), err) != 0) {
        free(mark);
        return -1;
    }
    *out = mark;
    return 0;
}

static void mark_destroy(struct backend *base, struct mark *mark) {
    if (mark != NULL)
        CUDA_RELEASE(cuda_state_of(base), cudaEventDestroy(mark->event));
    free(mark);
}

static void mark_set(struct backend *base, struct mark *mark) {
    struct cuda_backend *b = cuda_state_of(base);
    CHECK(b->recording == NULL);
    cuda_streams_before_anything(b);
    CUDA_TRY(b, cudaEventRecord(mark->event, b->stream));
}

static double mark_seconds(struct backend *base, const struct mark *from, const struct mark *to) {
    struct cuda_backend *b = cuda_state_of(base);
    float ms = 0;
    CUDA_TRY(b, cudaEventElapsedTime(&ms, from->event, to->event));
    return CUDA_OK(b) ? 1e-3 * (double)ms : 0;
}

const struct recording_ops cuda_recording_ops = {
    .begin = record_begin,
    .end = record_end,
    .replay = record_replay,
    .free = record_free,
    .mark_create = mark_create,
    .mark_destroy = mark_destroy,
    .mark_set = mark_set,
    .mark_seconds = mark_seconds,
};
