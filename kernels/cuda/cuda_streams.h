/* The compute stream, and that of KV block moves, in which blocks cross the bus while the device
 * computes. moves_order.h says which waits for the other; here is what makes it wait. What is
 * recorded goes through the compute stream, moves too. */
#ifndef QUIRE_KERNELS_CUDA_CUDA_STREAMS_H
#define QUIRE_KERNELS_CUDA_CUDA_STREAMS_H

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/moves_order.h"

/* The compute stream's part: called before it is given what the name says, or for a step's end
 * before the event that tells the host of it. */
void cuda_streams_begin_step(struct cuda_backend *b);
void cuda_streams_end_step(struct cuda_backend *b);
/* What may touch any block: see moves_order.h. */
void cuda_streams_before_anything(struct cuda_backend *b);
/* A recording; one that `touches_anything` has a step of its own, a transfer or a move in it. */
void cuda_streams_before_replay(struct cuda_backend *b, bool touches_anything);

/* Returns the stream in which to move these blocks of a pool, which waits for what comes before. */
cudaStream_t cuda_streams_for_move(struct cuda_backend *b, const struct block_set *blocks,
                                   int32_t block_size);

/* Waits for both. */
void cuda_streams_synchronize(struct cuda_backend *b);
/* Waits for the event, or with NULL for the compute stream. */
void cuda_streams_await(struct cuda_backend *b, cudaEvent_t event);

/* Returns whether something in the recording that ends may touch any block. */
bool cuda_streams_end_recording(struct cuda_backend *b);

#endif
