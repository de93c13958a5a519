/* Private to models/lora: an adapter's numbers, and what reads them from files. */
#ifndef QUIRE_MODELS_LORA_LORA_ADAPTER_PRIVATE_H
#define QUIRE_MODELS_LORA_LORA_ADAPTER_PRIVATE_H

#include "models/lora/lora_adapter.h"

#define LORA_NUM_ROLES 4

/* The projections that adapters can have. */
static const enum projection_role lora_roles[LORA_NUM_ROLES] = {
    PROJECTION_QKV, PROJECTION_ATTENTION_OUT, PROJECTION_GATE_UP, PROJECTION_DOWN};

/* Of one part of a projection, in the dtype of the slots. */
struct lora_matrices {
    int32_t rank; /* 0: not adapted */
    void *a;      /* [rank, inputs] */
    void *b;      /* [outputs, rank] */
};

struct lora_adapter {
    const struct model_config *config;
    struct lora_shape shape;
    struct lora_matrices *matrices; /* [num_layers][LORA_NUM_ROLES][LORA_MAX_PARTS] */
    size_t bytes;
    int32_t rank;
    uint8_t digest[CONTENT_HASH_BYTES];
};

/* Returns the elements of a projection's input; the role is one that lora_num_parts knows. */
int32_t lora_inputs(const struct model_config *config, enum projection_role role);
/* Returns one part's matrices. */
struct lora_matrices *lora_matrices_at(const struct lora_adapter *adapter, int32_t layer,
                                       enum projection_role role, int32_t part);
/* Sets the digest, once the matrices are there. */
int lora_set_digest(struct lora_adapter *adapter, struct error *err);

/* What the files say besides the tensors. */
struct lora_settings {
    float alpha;      /* 0: B is not scaled */
    bool square_root; /* the scale is alpha / sqrt(rank), not alpha / rank */
};

/* Reads a folder's adapter_config.json (lora_config.c; a build without cJSON has no folders). */
int lora_read_settings(const char *folder, struct lora_settings *out, struct error *err);

#endif
