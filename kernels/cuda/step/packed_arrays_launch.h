/* Copies host arrays, packed in one piece of pinned memory, to their destinations on the device:
 * one launch, and no copy engine that alternates with the kernels. */
#ifndef QUIRE_KERNELS_CUDA_STEP_PACKED_ARRAYS_LAUNCH_H
#define QUIRE_KERNELS_CUDA_STEP_PACKED_ARRAYS_LAUNCH_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A segment is the work of one block; a long array is cut into several. */
#define PACKED_SEGMENT_WORDS 1024

struct packed_segment {
    int32_t *dst;       /* device memory */
    int32_t first_word; /* of the packed ones */
    int32_t num_words;  /* <= PACKED_SEGMENT_WORDS */
};

/* segments and words are pinned memory, unchanged until the launch is done; no two segments write
 * the same word; num_segments > 0. */
cudaError_t launch_unpack_arrays(cudaStream_t stream, const struct packed_segment *segments,
                                 const int32_t *words, int32_t num_segments);

#ifdef __cplusplus
}
#endif

#endif
