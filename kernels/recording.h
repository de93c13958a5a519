/* Recorded work, and the device's own clock: what a device with streams offers in addition to its
 * ops (backend_ops.recording; NULL if it has none, like the CPU). Called by the backend's thread.
 *
 * A RECORDING holds what the ops between `begin` and `end` would have enqueued. Nothing of it runs
 * until `replay` enqueues it as one piece, in order with everything else, any number of times.
 *
 * Between `begin` and `end` nothing may wait or be allocated: no synchronize, step_wait or
 * step_end, no buffer, host memory or matrix, no other recording, no replay, no mark. Each op was
 * called before with the same shapes, so that the device has loaded its kernels and chosen its
 * algorithms.
 *
 * What a replay reads and writes:
 * - Device memory, and memory of host_alloc (swap_blocks), as it finds them then. They outlive the
 * recording, and so do matrices.
 * - The contents of host arrays at the time the op was recorded: they may be changed or freed
 *   afterwards. The contents are kept in `host_bytes` of memory that the recording allocates at
 *   `begin`.
 * - Results on the host (download, `out` and `listed_logprobs` of sample) are written by the wait
 *   that follows, to the address given in the recorded call; after several replays, those of the
 *   last. A recording that has any is not replayed again in a later step before that wait.
 * - The arrays of the step: those of a step_begin that is recorded itself, and neither `end` nor
 *   `replay` leaves a step begun then: ops that read its arrays do nothing until the next
 *   step_begin. Or else those of the last step_begin before each replay, which has as many tokens,
 *   padding included (step_inputs.num_padding), as the one before `begin` had.
 *
 * A MARK is a place in the order of enqueued work, and holds the device's time once the device has
 * reached it. */
#ifndef QUIRE_KERNELS_RECORDING_H
#define QUIRE_KERNELS_RECORDING_H

#include "config/base/error.h"

#include <stddef.h>
#include <stdint.h>

struct backend;
struct recording;
struct mark;

struct recording_ops {
    /* host_bytes: room for what the ops copy from host arrays, and the same again for what they
     * copy back. Returns 0, or -1 with ERROR_MEMORY or ERROR_DEVICE: nothing is recorded. */
    int (*begin)(struct backend *b, size_t host_bytes, struct error *err);
    /* Returns 0, or -1 with ERROR_MEMORY when host_bytes or the device's memory do not suffice,
     * ERROR_DEVICE when something cannot be recorded or the device failed. The recording is then
     * lost, and the backend continues to work unless the device itself failed. */
    int (*end)(struct backend *b, struct recording **out, struct error *err);
    /* A failure is kept, like that of an op. */
    void (*replay)(struct backend *b, struct recording *recording);
    /* Accepts NULL. Its replays were waited for. Every recording is freed before its backend. */
    void (*free)(struct backend *b, struct recording *recording);

    int (*mark_create)(struct backend *b, struct mark **out, struct error *err);
    void (*mark_destroy)(struct backend *b, struct mark *mark); /* accepts NULL */
    /* Enqueues the mark; when set again, it moves to the later place. */
    void (*mark_set)(struct backend *b, struct mark *mark);
    /* Returns the seconds from one mark to another. Both were set and waited for (by a wait for all
     * enqueued work). 0 after a failure. */
    double (*mark_seconds)(struct backend *b, const struct mark *from, const struct mark *to);
};

#endif
