/* Records what enters the core from outside, and what its steps computed, so that replay.h can run
 * them again: requests, when they were added; in each step the readings of the clock, the signals
 * that were seen (cancelled, not read), the jobs that had found masks, the steps that were waited
 * for and ranks that were lost. All else follows from these, since the core is deterministic
 * (engine/core/engine_core.h).
 *
 * A recording begins with a core that is new, or as good as (engine_core_renew), so that it can be
 * replayed from its beginning. When it has become long its successor begins as soon as nothing
 * runs; until then, at its very bound, recording pauses.
 *
 * Engine thread only, but for recorder_create and _destroy. */
#ifndef QUIRE_ENGINE_RECORD_RECORDER_H
#define QUIRE_ENGINE_RECORD_RECORDER_H

#include "engine/core/engine_core.h"
#include "engine/record/record_header.h"

struct recorder;

struct recorder_config {
    int64_t max_bytes; /* of a recording; its successor is due at three quarters of it */
    /* Takes the bytes of whole frames, in order; never waits. The first call, and each with
     * `begins`, is for a new recording. Returns -1 when they are lost, after which nothing more is
     * recorded. */
    int (*write)(void *context, bool begins, const void *data, size_t length);
    void *context;
};

/* Copies the header. ERROR_MEMORY. */
int recorder_create(const struct recorder_config *config, const struct record_header *header,
                    struct recorder **out, struct error *err);
void recorder_destroy(struct recorder *recorder); /* accepts NULL */

/* All of these accept NULL, and then do nothing. */

/* Returns whether a recording is to begin with the next recorder_begin: the first, or a successor.
 */
bool recorder_is_due(const struct recorder *recorder);
/* Begins a recording with this core, to which nothing was ever added. */
void recorder_begin(struct recorder *recorder, const struct engine_core *core);

/* Sets the figures about it. */
void recorder_count(const struct recorder *recorder, struct engine_stats *stats);

/* Before engine_core_add, and engine_core_flush_cache. */
void recorder_add(struct recorder *recorder, const struct request *request);
void recorder_flush(struct recorder *recorder);

/* From the core's callbacks, in engine_core_step. */
void recorder_note_clock(struct recorder *recorder, int64_t now_ns);
void recorder_note_signal(struct recorder *recorder, const struct request *request,
                          enum request_signal signal);
void recorder_note_collected(struct recorder *recorder, const struct step *step,
                             const struct error *failure);
void recorder_note_masks(struct recorder *recorder, uint64_t job);
void recorder_note_answer(struct recorder *recorder, enum executor_answer answer,
                          const struct error *err);
/* After engine_core_step, which returned `ran`. */
void recorder_end_step(struct recorder *recorder, const struct engine_core *core, bool ran);

#endif
