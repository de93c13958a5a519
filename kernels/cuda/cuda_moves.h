/* KV block moves (copy_blocks, swap_blocks) in a stream of their own, so that the device computes
 * while blocks cross the bus. moves_order.h says which stream waits for the other; here is what
 * makes it wait. What is recorded goes through the compute stream, moves too. */
#ifndef QUIRE_KERNELS_CUDA_CUDA_MOVES_H
#define QUIRE_KERNELS_CUDA_CUDA_MOVES_H

#include "kernels/cuda/cuda_backend.h"

/* The compute stream's part: called before it is given what the name says, or for a step's end
 * before the event that tells the host of it. */
void cuda_moves_begin_step(struct cuda_backend *b);
void cuda_moves_end_step(struct cuda_backend *b);
/* What may touch any block: see moves_order.h. */
void cuda_moves_before_anything(struct cuda_backend *b);
/* A recording; one that `touches_anything` has a step of its own, a transfer or a move in it. */
void cuda_moves_before_replay(struct cuda_backend *b, bool touches_anything);
/* Waits for both streams. */
void cuda_moves_synchronize(struct cuda_backend *b);

/* Between the beginning of a recording and this: whether something in it may touch any block. */
bool cuda_moves_end_recording(struct cuda_backend *b);

#endif
