/* The compute stream, and the stream of KV block moves, which copies blocks over the bus while the
 * device computes. moves_order.h decides which waits for the other; this file makes it wait.
 * Recorded work, moves included, goes through the compute stream. */
#ifndef QUIRE_KERNELS_CUDA_STEP_CUDA_STREAMS_H
#define QUIRE_KERNELS_CUDA_STEP_CUDA_STREAMS_H

#include "kernels/cuda/state/cuda_state.h"
#include "kernels/cuda/step/moves_order.h"

/* For the compute stream: called before it is given the work in the function's name; for a step's
 * end, before the event that the host waits for. */
void cuda_streams_begin_step(struct cuda_backend *b);
void cuda_streams_end_step(struct cuda_backend *b);
/* Called before work that may touch any block: see moves_order.h. */
void cuda_streams_before_anything(struct cuda_backend *b);
/* Called before a recording is replayed; one that `touches_anything` contains its own step, a
 * transfer or a move. */
void cuda_streams_before_replay(struct cuda_backend *b, bool touches_anything);

/* Returns the stream in which to move these blocks of a pool, which waits for what comes before. */
cudaStream_t cuda_streams_for_move(struct cuda_backend *b, const struct block_set *blocks,
                                   int32_t block_size);

/* Waits for both streams. */
void cuda_streams_synchronize(struct cuda_backend *b);
/* Waits for the event, or with NULL for the compute stream. */
void cuda_streams_await(struct cuda_backend *b, cudaEvent_t event);

/* Returns whether something in the recording that ends may touch any block. */
bool cuda_streams_end_recording(struct cuda_backend *b);

#endif
