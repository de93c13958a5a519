/* A model ready to run, and what every golden test does with it: feed a token sequence in steps of
 * some size and read all logits. Shared by the files of this folder. */
#ifndef QUIRE_TESTS_GOLDEN_RUN_H
#define QUIRE_TESTS_GOLDEN_RUN_H

#include "models/llama.h"

enum {
    GOLDEN_MAX_TOKENS = 512,
    GOLDEN_BLOCK_SIZE = 16,
    GOLDEN_NUM_BLOCKS = 80,
    GOLDEN_MAX_HIDDEN = 1024,
    GOLDEN_MAX_RANKS = 4
};

/* What a run computes on. */
struct golden_device {
    const char *backend;  /* as backend_open names it */
    const char *isa;      /* of "cpu"; NULL: the best */
    enum dtype dtype;     /* of "cuda" and "cuda-sim": activations, weights, keys and values */
    bool batch_invariant; /* likewise */
    int32_t num_ranks;    /* that compute each layer together; 0: one */
    int32_t num_stages;   /* of so many ranks each, that the layers are divided among; 0: one */
    enum kv_type kv_type; /* where the backend takes it; else its first */
    const char *adapter;  /* of the first sequence of a step, path; NULL: none */
    struct golden_run *drafts_for; /* the model's layer that predicts further tokens is run, on what
                                      this run of the same model computes; NULL: the model */
};

struct golden_rank {
    struct backend *backend;
    struct model_shard shard;
    struct weights *weights;
    struct lora_slots *lora;
    struct llama *llama;
    struct kv_cache cache;
    struct buffer *states;      /* hidden states by slot: of a run that has, or is, such a layer */
    struct buffer owned_states; /* of the former */
};

struct golden_run {
    struct model *model;
    struct serving_limits limits;
    int32_t num_ranks; /* of all stages */
    enum kv_type kv_type;
    struct lora_shape lora_shape;
    struct lora_adapter *adapter;
    struct backend_group *groups[GOLDEN_MAX_RANKS]; /* by stage */
    struct backend_pipeline *pipeline;
    struct golden_run *drafts_for;
    bool keeps_states; /* of a layer that drafts: its own next token follows the step's last */
    int32_t next_slot; /* which is that token's */
    struct golden_rank ranks[GOLDEN_MAX_RANKS]; /* each has a thread of its own for a step */
    int32_t sampler;                            /* the rank that samples */
    struct backend *backend;                    /* its */
    struct backend_ops ops;                     /* of all, with what samples watched */
    const struct backend_ops *original_ops;
};

/* One sequence as the engine would hold it. Each group of layers has GOLDEN_NUM_BLOCKS blocks of
 * the cache, and the same table of these. Of groups that have the window, the first num_dropped
 * entries are that of the first block. */
struct golden_sequence {
    int32_t num_cached;
    int32_t block_table[GOLDEN_NUM_BLOCKS];
    int32_t num_dropped;
};

/* Drops the blocks that no token to come sees, which are NaN from then on, on every rank. */
void golden_run_drop_blocks(struct golden_run *run, struct golden_sequence *sequence);

/* Returns 0, or -1 with the reason. A machine without `isa`, and a model that cannot be cut for so
 * many ranks, is ERROR_CONFIG, a machine without the device ERROR_DEVICE. */
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
