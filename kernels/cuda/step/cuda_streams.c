#include "kernels/cuda/step/cuda_streams.h"

#include "kernels/cuda/state/cuda_check.h"
#include "kernels/cuda/ranks/cuda_group.h"

#include <stdlib.h>

struct cuda_streams {
    cudaStream_t moves;
    cudaEvent_t computed, moved; /* all that the compute stream, and the other, had been given */
    struct moves_order order;
    bool anything_was_recorded; /* since a recording began */
};

static int create_event(cudaEvent_t *event, struct error *err) {
    return CUDA_START(cudaEventCreateWithFlags(event, cudaEventDisableTiming), err);
}

int cuda_streams_create(struct cuda_backend *b, struct error *err) {
    struct cuda_streams *streams = calloc(1, sizeof(*streams));
    if (streams == NULL)
        return error_set(err, ERROR_MEMORY, "out of memory for the streams of a cuda device");
    b->streams = streams;
    if (CUDA_START(cudaStreamCreateWithFlags(&b->stream, cudaStreamNonBlocking), err) != 0 ||
        CUDA_START(cudaStreamCreateWithFlags(&streams->moves, cudaStreamNonBlocking), err) != 0 ||
        create_event(&streams->computed, err) != 0)
        return -1;
    return create_event(&streams->moved, err);
}

void cuda_streams_destroy(struct cuda_backend *b) {
    struct cuda_streams *streams = b->streams;
    if (streams == NULL)
        return;
    if (streams->moved != NULL)
        CUDA_RELEASE(b, cudaEventDestroy(streams->moved));
    if (streams->computed != NULL)
        CUDA_RELEASE(b, cudaEventDestroy(streams->computed));
    if (streams->moves != NULL)
        CUDA_RELEASE(b, cudaStreamDestroy(streams->moves));
    if (b->stream != NULL)
        CUDA_RELEASE(b, cudaStreamDestroy(b->stream));
    free(streams);
    b->streams = NULL;
}

static void wait_for_moves(struct cuda_backend *b) {
    CUDA_TRY(b, cudaEventRecord(b->streams->moved, b->streams->moves));
    CUDA_TRY(b, cudaStreamWaitEvent(b->stream, b->streams->moved, 0));
}

static void wait_for_compute(struct cuda_backend *b) {
    CUDA_TRY(b, cudaEventRecord(b->streams->computed, b->stream));
    CUDA_TRY(b, cudaStreamWaitEvent(b->streams->moves, b->streams->computed, 0));
}

/* A step within a recording is ordered by each replay. */
void cuda_streams_begin_step(struct cuda_backend *b) {
    struct cuda_streams *streams = b->streams;
    if (b->recording != NULL) {
        streams->anything_was_recorded = true;
        return;
    }
    const struct step_blocks step = {.block_tables = b->step.known_tables,
                                     .context_lens = b->step.known_context_lens,
                                     .num_groups = b->step.host.num_groups,
                                     .group_rows = b->config.limits.max_num_seqs,
                                     .num_seqs = b->step.host.num_seqs,
                                     .stride = b->step.table_stride};
    if (moves_order_begin_step(&streams->order, &step))
        wait_for_moves(b);
}

void cuda_streams_end_step(struct cuda_backend *b) {
    if (moves_order_end_step(&b->streams->order))
        wait_for_moves(b);
}

void cuda_streams_before_anything(struct cuda_backend *b) {
    if (b->recording != NULL)
        b->streams->anything_was_recorded = true;
    else if (moves_order_anything(&b->streams->order))
        wait_for_moves(b);
}

void cuda_streams_before_replay(struct cuda_backend *b, bool touches_anything) {
    if (touches_anything || !b->streams->order.is_step_open)
        cuda_streams_before_anything(b);
}

cudaStream_t cuda_streams_for_move(struct cuda_backend *b, const struct block_set *blocks,
                                   int32_t block_size) {
    struct cuda_streams *streams = b->streams;
    if (b->recording != NULL || streams->order.is_step_open) {
        cuda_streams_before_anything(b);
        return b->stream;
    }
    if (moves_order_move(&streams->order, blocks, block_size))
        wait_for_compute(b);
    return streams->moves;
}

void cuda_streams_synchronize(struct cuda_backend *b) {
    if (moves_order_synchronize(&b->streams->order))
        wait_for_moves(b);
    cuda_streams_await(b, NULL);
}

void cuda_streams_await(struct cuda_backend *b, cudaEvent_t event) {
    if (b->comm != NULL)
        cuda_comm_await(b, event);
    else if (event != NULL)
        CUDA_TRY(b, cudaEventSynchronize(event));
    else
        CUDA_TRY(b, cudaStreamSynchronize(b->stream));
}

bool cuda_streams_end_recording(struct cuda_backend *b) {
    bool anything = b->streams->anything_was_recorded;
    b->streams->anything_was_recorded = false;
    return anything;
}
