/* Counts what kernels read of device memory through load_weights, load_global, __ldg and
 * copy_async_*, but not what they read through plain pointers: plans, positions, biases, addends,
 * partial results. The same reads are looked at in a thread that was launched early and has not
 * waited yet: one that is not of weights ends the process.
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
/* Of the grid that runs. */
extern __attribute__((visibility("hidden"))) bool reads_are_watched;
/* By the running thread, then. */
void watch_read(const void *address, size_t bytes, bool of_weights);
void begin_grid_reads(bool is_early);
void end_grid_reads(const char *kernel_name);
} // namespace cudasim

template <class V> static inline V load_weights(const V *p) {
    if (cudasim::reads_are_watched)
        cudasim::watch_read(p, sizeof(V), true);
    return *p;
}
template <class V> static inline V load_global(const V *p) {
    if (cudasim::reads_are_watched)
        cudasim::watch_read(p, sizeof(V), false);
    return *p;
}
#endif

#endif
