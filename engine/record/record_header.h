/* The first frame of a recording: what must be equal for its steps to be repeated, and the options
 * that make it so. */
#ifndef QUIRE_ENGINE_RECORD_RECORD_HEADER_H
#define QUIRE_ENGINE_RECORD_RECORD_HEADER_H

#include "config/serving_limits.h"
#include "engine/core/engine_core.h"
#include "engine/record/record_codec.h"

#define RECORD_VERSION 8
#define RECORD_MAX_OPTIONS_BYTES 16384
/* Maximum of any time, so that sums of a few do not overflow. */
#define RECORD_MAX_NS (INT64_MAX / 8)

struct record_header {
    char options[RECORD_MAX_OPTIONS_BYTES]; /* for rebuilding the executor: "NAME=VALUE" lines, each
                                               with its line end */
    char build[80];                         /* build_hash; another build may repeat the steps too */

    /* From the executor (executor_info): these decide the bits of results. */
    uint8_t model_digest[CONTENT_HASH_BYTES];
    uint8_t draft_digest[CONTENT_HASH_BYTES]; /* of the draft model; zeros: there is none */
    char device[32];
    char numerics[256];
    char kv_type[16];
    char activation_dtype[16];
    int32_t num_ranks, num_stages;
    bool batch_invariant;
    int64_t kv_bytes, swap_bytes; /* of the two pools */

    /* These decide the plans of steps. Of the core's configuration, only what the table in
     * record_header.c names is valid: no other field, and no pointer. */
    struct serving_limits limits;
    struct engine_core_config core;
};

/* Appends its values. */
void record_header_write(const struct record_header *header, struct byte_buffer *out);
/* Returns whether the values begin like a header's, of any version. */
bool record_header_is_one(struct record_input *in);
/* Fails with ERROR_SYNTAX for bytes that are not a header, a header of another version, or values
 * that no engine has.
 */
int record_header_read(struct record_input *in, struct record_header *out, struct error *err);

/* Compares what decides bits and plans, except for the pools' bytes. ERROR_CONFIG names the first
 * difference. */
int record_header_compare(const struct record_header *recorded, const struct record_header *here,
                          struct error *err);

#endif
