/* Counts what kernels read of device memory through load_weights, load_global, __ldg and
 * copy_async_*, but not what they read through plain pointers: plans, positions, biases, addends,
 * partial results, and x of products in narrow tiles.
 *
 * What lanes of one warp read equally often counts once, as if they did so together; what two warps
 * read, or one lane twice, counts twice. So a count is what goes through the L1 cache when nothing
 * is found in it. */
#ifndef CUDASIM_READS_H
#define CUDASIM_READS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Counts from here on, from zero; a module exports these functions. The device waits. */
__attribute__((visibility("default"))) void cudasim_count_reads(void);

/* Stops counting. Returns the bytes that kernels whose name holds the text have read of that memory
 * since; begin NULL: of weights, by load_weights. */
__attribute__((visibility("default"))) uint64_t cudasim_bytes_read(const char *kernel,
                                                                   const void *begin, size_t bytes);

#ifdef __cplusplus
}

namespace cudasim {
extern __attribute__((visibility("hidden"))) bool reads_are_counted;
/* By the running thread. */
void count_read(const void *address, size_t bytes, bool of_weights);
/* Of the grid that has ended. */
void end_grid_reads(const char *kernel_name);
} // namespace cudasim

template <class V> static inline V load_weights(const V *p) {
    if (cudasim::reads_are_counted)
        cudasim::count_read(p, sizeof(V), true);
    return *p;
}
template <class V> static inline V load_global(const V *p) {
    if (cudasim::reads_are_counted)
        cudasim::count_read(p, sizeof(V), false);
    return *p;
}
#endif

#endif
