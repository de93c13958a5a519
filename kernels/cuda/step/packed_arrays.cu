#include "kernels/cuda/device/device.cuh"
#include "kernels/cuda/step/packed_arrays_launch.h"

#define BLOCK 256

/* A thread's loads are independent, as each crosses the bus. */
__global__ void unpack_arrays_kernel(const packed_segment *segments, const int32_t *words) {
    const packed_segment segment = segments[blockIdx.x];
    const int32_t *src = words + segment.first_word;
#pragma unroll
    for (int i = 0; i < PACKED_SEGMENT_WORDS / BLOCK; i++) {
        int32_t at = i * BLOCK + (int32_t)threadIdx.x;
        if (at < segment.num_words)
            segment.dst[at] = src[at];
    }
}

cudaError_t launch_unpack_arrays(cudaStream_t stream, const struct packed_segment *segments,
                                 const int32_t *words, int32_t num_segments) {
    LAUNCH(unpack_arrays_kernel, (unsigned)num_segments, BLOCK, 0, stream, segments, words);
    return cudaGetLastError();
}
