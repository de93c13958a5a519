/* Packs host arrays into one piece of pinned memory, from which one kernel copies them to their
 * destinations (packed_arrays_launch.h). Lengths are in words of 32 bits. */
#ifndef QUIRE_KERNELS_CUDA_STEP_CUDA_PACKED_H
#define QUIRE_KERNELS_CUDA_STEP_CUDA_PACKED_H

#include "kernels/cuda/state/cuda_state.h"
#include "kernels/cuda/step/packed_arrays_launch.h"

struct cuda_packed {
    struct packed_segment *segments; /* NULL: the device has failed, and nothing is packed */
    int32_t *words;
    size_t max_segments, max_words;
    size_t num_segments, num_words;
};

/* Returns the bytes of pinned memory for num_arrays arrays with num_words words in all. */
size_t cuda_packed_bytes(size_t num_arrays, size_t num_words);
/* Takes that memory from the step being enqueued or recorded. */
struct cuda_packed cuda_packed_begin(struct cuda_backend *b, size_t num_arrays, size_t num_words);
/* Returns where to write an array of num_words words for that destination on the device; NULL when
 * num_words is 0 or the device has failed. */
void *cuda_packed_add(struct cuda_packed *packed, void *device_dst, size_t num_words);
/* Adds a copy of the array; false if cuda_packed_add returns NULL. */
bool cuda_packed_copy(struct cuda_packed *packed, void *device_dst, const void *src,
                      size_t num_words);
void cuda_packed_send(struct cuda_backend *b, const struct cuda_packed *packed);

#endif
