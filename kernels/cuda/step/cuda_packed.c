#include "kernels/cuda/step/cuda_packed.h"

#include "config/base/check.h"
#include "config/base/numbers.h"
#include "kernels/cuda/state/cuda_check.h"
#include "kernels/cuda/step/cuda_staging.h"

#include <string.h>

/* Every array but a full one has a segment that is not full. */
static size_t max_segments_of(size_t num_arrays, size_t num_words) {
    return num_arrays + num_words / PACKED_SEGMENT_WORDS;
}

size_t cuda_packed_bytes(size_t num_arrays, size_t num_words) {
    return max_segments_of(num_arrays, num_words) * sizeof(struct packed_segment) +
           num_words * sizeof(int32_t);
}

struct cuda_packed cuda_packed_begin(struct cuda_backend *b, size_t num_arrays, size_t num_words) {
    struct cuda_packed packed = {.max_segments = max_segments_of(num_arrays, num_words),
                                 .max_words = num_words};
    packed.segments = cuda_staging_reserve(b, cuda_packed_bytes(num_arrays, num_words));
    if (packed.segments != NULL)
        packed.words = (int32_t *)(packed.segments + packed.max_segments);
    return packed;
}

void *cuda_packed_add(struct cuda_packed *packed, void *device_dst, size_t num_words) {
    if (packed->segments == NULL || num_words == 0)
        return NULL;
    size_t first = packed->num_words;
    CHECK(num_words <= packed->max_words - first);
    packed->num_words += num_words;
    for (size_t at = 0, count; at < num_words; at += count) {
        count = min_size(num_words - at, PACKED_SEGMENT_WORDS);
        CHECK(packed->num_segments < packed->max_segments);
        packed->segments[packed->num_segments++] =
            (struct packed_segment){.dst = (int32_t *)device_dst + at,
                                    .first_word = (int32_t)(first + at),
                                    .num_words = (int32_t)count};
    }
    return packed->words + first;
}

bool cuda_packed_copy(struct cuda_packed *packed, void *device_dst, const void *src,
                      size_t num_words) {
    void *to = cuda_packed_add(packed, device_dst, num_words);
    if (to != NULL)
        memcpy(to, src, num_words * sizeof(int32_t));
    return to != NULL;
}

void cuda_packed_send(struct cuda_backend *b, const struct cuda_packed *packed) {
    if (packed->num_segments > 0)
        CUDA_TRY(b, launch_unpack_arrays(b->stream, packed->segments, packed->words,
                                         (int32_t)packed->num_segments));
}
