/* Runs a recording again: the same core receives the same input at the same steps, with the
 * recorded clock readings. What its steps compute is compared with what was recorded, until one
 * differs. Streams are read as they fill, and discarded. */
#ifndef QUIRE_ENGINE_RECORD_REPLAY_H
#define QUIRE_ENGINE_RECORD_REPLAY_H

#include "engine/record/recorder.h"

/* The executor and all below outlive the replay. */
struct replay_config {
    const struct record_header *header; /* of the recording; its limits are those of the executor */
    struct record_frames *frames;       /* positioned after the header */
    struct executor *executor;
    const struct tokenizer *tokenizer;
    struct drafter *drafter;                     /* or NULL, as when it was recorded */
    const struct grammar_vocabulary *vocabulary; /* or NULL: a request with a grammar is refused */
    int64_t mask_budget;                         /* as it was recorded: MASK_STEP_BUDGET */
    const struct model_config *model;            /* of the executor; read only with adapters */
    /* Opens the adapter of that name: a new one in each call, of which it returns a reference.
     * NULL: it cannot, and *err says why. May be NULL: there are none. */
    struct adapter *(*open_adapter)(void *context, const char *name, struct error *err);
    void *context;
};

struct replay_result {
    bool differs;
    char difference[512]; /* what differs, and where, in step `num_steps` */
    uint64_t num_steps;   /* calls of engine_core_step; the first is 1 */
    uint64_t num_requests;
    uint64_t num_entries; /* sequences of steps, summed up */
    uint64_t num_tokens;  /* sampled */
    uint64_t num_events;  /* pushed into streams */
    uint64_t num_event_bytes;
    uint64_t num_open; /* requests that had not ended at the end of the recording */
};

/* Returns 0 when the recording was run to its end, or to a step that differs; *out says which.
 * Fails with ERROR_SYNTAX for a damaged or invalid recording (*out then says how far it was equal),
 * ERROR_CONFIG for an adapter that is missing or has other numbers, ERROR_MEMORY or ERROR_IO. */
int replay_run(const struct replay_config *config, struct replay_result *out, struct error *err);

#endif
