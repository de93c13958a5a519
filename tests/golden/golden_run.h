/* A model ready to run, and what every golden test does with it: feed a token sequence in steps of
 * some size and read all logits. Shared by the files of this folder. */
#ifndef QUIRE_TESTS_GOLDEN_RUN_H
#define QUIRE_TESTS_GOLDEN_RUN_H

#include "models/llama.h"

enum {
    GOLDEN_MAX_TOKENS = 512,
    GOLDEN_BLOCK_SIZE = 16,
    GOLDEN_NUM_BLOCKS = 80,
    GOLDEN_MAX_HIDDEN = 1024
};

/* What a run computes on. */
struct golden_device {
    const char *backend;  /* as backend_open names it */
    const char *isa;      /* of "cpu"; NULL: the best */
    enum dtype dtype;     /* of "cuda" and "cuda-sim": activations, weights, keys and values */
    bool batch_invariant; /* likewise */
};

struct golden_run {
    struct backend_ops ops; /* the backend's, with `sample` watched */
    struct backend *backend;
    const struct backend_ops *original_ops;
    struct model *model;
    struct model_shard shard;
    struct weights *weights;
    struct llama *llama;
    struct kv_cache cache;
};

/* One sequence as the engine would hold it. */
struct golden_sequence {
    int32_t num_cached;
    int32_t block_table[GOLDEN_NUM_BLOCKS];
};

/* Keys and values are kept in float where the backend leaves a choice. Returns 0, or -1 with the
 * reason. A machine without `isa` is ERROR_CONFIG, one without the device ERROR_DEVICE. */
int golden_run_init(struct golden_run *run, const char *model_path,
                    const struct golden_device *device, struct error *err);
void golden_run_finish(struct golden_run *run); /* accepts a zeroed run */

/* Appends tokens[0..count) to the sequence in one step. out_logits: [count][vocab] or NULL. Returns
 * the greedy choice after the last one. */
int32_t golden_run_step(struct golden_run *run, struct golden_sequence *sequence,
                        const int32_t *tokens, int32_t count, float *out_logits);

/* The same for two sequences in one step; out_logits of the first one's tokens. */
void golden_run_step_pair(struct golden_run *run, struct golden_sequence *const sequences[2],
                          const int32_t *const tokens[2], const int32_t counts[2],
                          float *out_logits);

/* Appends tokens[0..count) to the first sequence, and `company` tokens to the second in the same
 * step if it is not NULL. Adds the states of the first one's tokens to sum [hidden_size], and
 * leaves its last token's state in last [hidden_size]. */
void golden_run_pool(struct golden_run *run, struct golden_sequence *sequence,
                     const int32_t *tokens, int32_t count, struct golden_sequence *company,
                     int32_t num_company, float *sum, float *last);

#endif
