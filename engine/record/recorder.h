/* Records what enters the core from outside, and what its steps computed, so that replay.h can run
 * them again: requests when they are added, adapters when they are loaded and unloaded, and for
 * each step the clock readings, the signals seen (cancelled, not read), the jobs that found masks,
 * the steps that were waited for, and lost ranks. Everything else follows from these, because the
 * core is deterministic (engine/core/engine_core.h).
 *
 * A recording begins with a new or reset core (engine_core_renew), so that it can be replayed from
 * its beginning. When it has become long, its successor begins as soon as nothing runs. If it
 * reaches its bound before that, recording pauses.
 *
 * Engine thread only, except for recorder_create and _destroy. */
#ifndef QUIRE_ENGINE_RECORD_RECORDER_H
#define QUIRE_ENGINE_RECORD_RECORDER_H

#include "engine/core/engine_core.h"
#include "engine/record/record_header.h"

struct recorder;

struct recorder_config {
    int64_t max_bytes; /* of a recording; its successor is due at three quarters of this */
    /* Takes the bytes of whole frames, in order; must not block. The first call, and each with
     * `begins`, starts a new recording. Returns -1 when the bytes are lost, after which nothing
     * more is recorded. */
    int (*write)(void *context, bool begins, const void *data, size_t length);
    void *context;
};

/* Copies the header. ERROR_MEMORY. */
int recorder_create(const struct recorder_config *config, const struct record_header *header,
                    struct recorder **out, struct error *err);
void recorder_destroy(struct recorder *recorder); /* accepts NULL */

/* The functions below accept NULL, and then do nothing. */

/* Returns whether the next recorder_begin should start a recording: the first one, or a successor.
 */
bool recorder_is_due(const struct recorder *recorder);
/* Begins a recording with this core, which never had a request since it was created or reset. */
void recorder_begin(struct recorder *recorder, const struct engine_core *core);

/* Sets the recording's figures in the stats. */
void recorder_count(const struct recorder *recorder, struct engine_stats *stats);

/* Called before engine_core_add, _flush_cache, _load_adapter, _unload_adapter and
 * _rewrite_adapters. */
void recorder_add(struct recorder *recorder, const struct request *request);
void recorder_flush(struct recorder *recorder);
void recorder_load(struct recorder *recorder, int32_t slot, const struct adapter *adapter,
                   bool is_ready);
void recorder_unload(struct recorder *recorder, int32_t slot);
void recorder_rewrite(struct recorder *recorder);

/* Called from the core's callbacks, in engine_core_step. */
void recorder_note_clock(struct recorder *recorder, int64_t now_ns);
void recorder_note_signal(struct recorder *recorder, const struct request *request,
                          enum request_signal signal);
void recorder_note_collected(struct recorder *recorder, const struct step *step,
                             const struct error *failure);
void recorder_note_masks(struct recorder *recorder, uint64_t job);
void recorder_note_answer(struct recorder *recorder, enum executor_answer answer,
                          const struct error *err);
/* Called after engine_core_step, which returned `ran`. */
void recorder_end_step(struct recorder *recorder, const struct engine_core *core, bool ran);

#endif
