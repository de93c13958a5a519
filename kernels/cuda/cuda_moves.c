#include "kernels/cuda/cuda_moves.h"

#include "config/base/numbers.h"
#include "kernels/cuda/copy_blocks_launch.h"
#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/cuda_staging.h"
#include "kernels/cuda/moves_order.h"

#include <stdlib.h>
#include <string.h>

struct cuda_moves {
    cudaStream_t stream;
    cudaEvent_t computed, moved; /* all that the compute stream, and this one, had been given */
    struct buffer list;          /* int32_t [CUDA_LIST_LENGTH]: pairs of blocks to be copied */
    struct moves_order order;
    int32_t *context_lens;      /* [max_num_seqs] of the step begun last */
    bool anything_was_recorded; /* since a recording began */
};

static struct cuda_backend *state_of(struct backend *b) {
    return (struct cuda_backend *)b;
}

int cuda_moves_create(struct cuda_backend *b, struct error *err) {
    struct cuda_moves *moves = calloc(1, sizeof(*moves));
    if (moves == NULL)
        return error_set(err, ERROR_MEMORY, "out of memory for the cuda device");
    b->moves = moves;
    moves->context_lens = calloc((size_t)b->config.limits.max_num_seqs, sizeof(int32_t));
    if (moves->context_lens == NULL)
        return error_set(err, ERROR_MEMORY, "out of memory for the cuda device");
    if (CUDA_START(cudaStreamCreateWithFlags(&moves->stream, cudaStreamNonBlocking), err) != 0 ||
        CUDA_START(cudaEventCreateWithFlags(&moves->computed, cudaEventDisableTiming), err) != 0 ||
        CUDA_START(cudaEventCreateWithFlags(&moves->moved, cudaEventDisableTiming), err) != 0)
        return -1;
    return cuda_buffer_alloc(&b->base, CUDA_LIST_LENGTH * sizeof(int32_t), &moves->list, err);
}

void cuda_moves_destroy(struct cuda_backend *b) {
    struct cuda_moves *moves = b->moves;
    if (moves == NULL)
        return;
    cuda_buffer_free(&b->base, &moves->list);
    if (moves->moved != NULL)
        CUDA_RELEASE(b, cudaEventDestroy(moves->moved));
    if (moves->computed != NULL)
        CUDA_RELEASE(b, cudaEventDestroy(moves->computed));
    if (moves->stream != NULL)
        CUDA_RELEASE(b, cudaStreamDestroy(moves->stream));
    free(moves->context_lens);
    free(moves);
    b->moves = NULL;
}

/* --- The compute stream's part ---------------------------------------------------------------- */

static void wait_for_moves(struct cuda_backend *b) {
    CUDA_TRY(b, cudaEventRecord(b->moves->moved, b->moves->stream));
    CUDA_TRY(b, cudaStreamWaitEvent(b->stream, b->moves->moved, 0));
}

/* A step within a recording is ordered by each replay. */
void cuda_moves_begin_step(struct cuda_backend *b) {
    struct cuda_moves *moves = b->moves;
    const struct step_inputs *inputs = &b->step.host;
    if (b->recording != NULL) {
        moves->anything_was_recorded = true;
        return;
    }
    if (inputs->num_seqs > 0)
        memcpy(moves->context_lens, inputs->context_lens,
               (size_t)inputs->num_seqs * sizeof(int32_t));
    const struct step_blocks step = {.block_tables = b->step.known_tables,
                                     .context_lens = moves->context_lens,
                                     .num_seqs = inputs->num_seqs,
                                     .stride = b->step.table_stride};
    if (moves_order_begin_step(&moves->order, &step))
        wait_for_moves(b);
}

void cuda_moves_end_step(struct cuda_backend *b) {
    if (moves_order_end_step(&b->moves->order))
        wait_for_moves(b);
}

void cuda_moves_before_anything(struct cuda_backend *b) {
    if (b->recording != NULL)
        b->moves->anything_was_recorded = true;
    else if (moves_order_anything(&b->moves->order))
        wait_for_moves(b);
}

void cuda_moves_before_replay(struct cuda_backend *b, bool touches_anything) {
    if (touches_anything || !b->moves->order.is_step_open)
        cuda_moves_before_anything(b);
}

bool cuda_moves_end_recording(struct cuda_backend *b) {
    bool anything = b->moves->anything_was_recorded;
    b->moves->anything_was_recorded = false;
    return anything;
}

void cuda_moves_synchronize(struct cuda_backend *b) {
    if (moves_order_synchronize(&b->moves->order))
        wait_for_moves(b);
    CUDA_TRY(b, cudaStreamSynchronize(b->stream));
}

/* --- Moves ------------------------------------------------------------------------------------ */

/* Returns the stream that moves these blocks next, once it waits for what comes before. */
static cudaStream_t stream_for(struct cuda_backend *b, const struct kv_cache *cache,
                               const struct block_set *blocks) {
    struct cuda_moves *moves = b->moves;
    if (b->recording != NULL || moves->order.is_step_open) {
        cuda_moves_before_anything(b);
        return b->stream;
    }
    if (moves_order_move(&moves->order, blocks, cache->layout.block_size)) {
        CUDA_TRY(b, cudaEventRecord(moves->computed, b->stream));
        CUDA_TRY(b, cudaStreamWaitEvent(moves->stream, moves->computed, 0));
    }
    return moves->stream;
}

/* As many pairs as the list holds: the sources, then the destinations. */
static void copy_listed(struct cuda_backend *b, struct kv_cache *cache, const int32_t *src,
                        const int32_t *dst, int32_t num_blocks) {
    struct block_set blocks = {0};
    size_t bytes = (size_t)num_blocks * sizeof(int32_t);
    int32_t *list = b->moves->list.data, *pinned = cuda_staging_reserve(b, 2 * bytes);
    if (pinned == NULL)
        return;
    memcpy(pinned, src, bytes);
    memcpy(pinned + num_blocks, dst, bytes);
    block_set_add(&blocks, src, num_blocks);
    block_set_add(&blocks, dst, num_blocks);
    cudaStream_t stream = stream_for(b, cache, &blocks);
    CUDA_TRY(b, cudaMemcpyAsync(list, pinned, 2 * bytes, cudaMemcpyHostToDevice, stream));
    CUDA_TRY(b, launch_copy_blocks(stream, cache->buffer.data, kv_block_bytes(&cache->layout), list,
                                   list + num_blocks, num_blocks));
}

void cuda_copy_blocks(struct backend *base, const struct copy_blocks_args *args) {
    struct cuda_backend *b = state_of(base);
    for (int32_t first = 0, count; first < args->num_blocks && CUDA_OK(b); first += count) {
        count = min_int32(args->num_blocks - first, CUDA_LIST_LENGTH / 2);
        copy_listed(b, args->cache, args->src + first, args->dst + first, count);
    }
}

/* Counts the pairs from `first` on that are neighbours on both sides, and so one copy. */
static int32_t run_length(const struct swap_blocks_args *args, int32_t first) {
    int32_t n = 1;
    while (first + n < args->num_blocks &&
           args->device_blocks[first + n] == args->device_blocks[first] + n &&
           args->host_blocks[first + n] == args->host_blocks[first] + n)
        n++;
    return n;
}

static void swap_on(struct cuda_backend *b, cudaStream_t stream,
                    const struct swap_blocks_args *args) {
    size_t block_bytes = kv_block_bytes(&args->cache->layout);
    for (int32_t i = 0, n; i < args->num_blocks && CUDA_OK(b); i += n) {
        n = run_length(args, i);
        char *device =
            (char *)args->cache->buffer.data + (size_t)args->device_blocks[i] * block_bytes;
        char *host = (char *)args->host_pool + (size_t)args->host_blocks[i] * block_bytes;
        if (args->direction == SWAP_OUT)
            CUDA_TRY(b, cudaMemcpyAsync(host, device, (size_t)n * block_bytes,
                                        cudaMemcpyDeviceToHost, stream));
        else
            CUDA_TRY(b, cudaMemcpyAsync(device, host, (size_t)n * block_bytes,
                                        cudaMemcpyHostToDevice, stream));
    }
}

void cuda_swap_blocks(struct backend *base, const struct swap_blocks_args *args) {
    struct cuda_backend *b = state_of(base);
    struct block_set blocks = {0};
    if (args->num_blocks == 0)
        return;
    block_set_add(&blocks, args->device_blocks, args->num_blocks);
    swap_on(b, stream_for(b, args->cache, &blocks), args);
}
