/* Recorded work, and the device's own clock: what a device of streams offers beside its ops
 * (backend_ops.recording; NULL where there is none, as on the CPU). Called by the backend's thread.
 *
 * A RECORDING holds what the ops between `begin` and `end` would have enqueued. Nothing of it runs
 * until `replay` enqueues it, as one piece and in the order of everything else, as often as wanted.
 *
 * Between `begin` and `end` nothing may wait or be allocated: no synchronize, step_wait or
 * step_end, no buffer, host memory or matrix, no other recording, no replay, no mark. Each op was
 * called before with the same shapes, by which the device has loaded its kernels and chosen its
 * algorithms.
 *
 * What a replay reads and writes:
 * - Device memory, and memory of host_alloc (swap_blocks), as it finds them then. They outlive the
 *   recording, and so do matrices.
 * - Of host arrays, what they held while the op was recorded: they may be changed or freed
 *   afterwards. What they held lies in `host_bytes` of memory that the recording takes at `begin`.
 * - Results on the host (download, `out` and `listed_logprobs` of sample) are written by the wait
 *   that follows, where the recorded call was told to; after several replays, those of the last. A
 *   recording that has any is not replayed again in a later step before that wait.
 * - The arrays of the step: those of a step_begin that is recorded itself, and neither `end` nor
 *   `replay` leaves a step begun then: ops that read its arrays do nothing until the next
 *   step_begin. Or else those of the last step_begin before each replay, which has as many tokens,
 *   padding included (step_inputs.num_padding), as the one before `begin` had.
 *
 * A MARK is a place in the order of what is enqueued, and has the device's time once that came to
 * it. */
#ifndef QUIRE_KERNELS_RECORDING_H
#define QUIRE_KERNELS_RECORDING_H

#include "config/base/error.h"

#include <stddef.h>
#include <stdint.h>

struct backend;
struct recording;
struct mark;

struct recording_ops {
    /* host_bytes: room for what the ops copy from host arrays, and as much again for what they
     * bring back. 0, or -1 with ERROR_MEMORY or ERROR_DEVICE: nothing is recorded. */
    int (*begin)(struct backend *b, size_t host_bytes, struct error *err);
    /* 0, or -1: ERROR_MEMORY when host_bytes or the device's memory are too few, ERROR_DEVICE when
     * something cannot be recorded, or the device failed. Whatever was recorded is gone then, and
     * the backend works on unless the device itself failed. */
    int (*end)(struct backend *b, struct recording **out, struct error *err);
    /* A failure is kept, as an op's. */
    void (*replay)(struct backend *b, struct recording *recording);
    /* Accepts NULL. Its replays were waited for. Every recording is freed before its backend. */
    void (*free)(struct backend *b, struct recording *recording);

    int (*mark_create)(struct backend *b, struct mark **out, struct error *err);
    void (*mark_destroy)(struct backend *b, struct mark *mark); /* accepts NULL */
    /* Enqueues it; set again, it is at the later place. */
    void (*mark_set)(struct backend *b, struct mark *mark);
    /* Seconds from one to another, both set and waited for (by a wait for all that was enqueued); 0
     * after a failure. */
    double (*mark_seconds)(struct backend *b, const struct mark *from, const struct mark *to);
};

#endif
