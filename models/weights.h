/* The weights of one rank on its device, bound by name from a tensor file and checked for shape and
 * dtype. Created and used by the rank's worker thread. */
#ifndef QUIRE_MODELS_WEIGHTS_H
#define QUIRE_MODELS_WEIGHTS_H

#include "kernels/backend.h"
#include "models/model.h"

struct layer_weights {
    struct buffer attention_norm; /* float [hidden] */
    struct matrix *qkv;           /* [(num_heads + 2 num_kv_heads) * head_dim, hidden] */
    struct matrix *attention_out; /* [hidden, num_heads * head_dim] */
    struct buffer ffn_norm;       /* float [hidden] */
    struct matrix *gate_up;       /* [2 * intermediate, hidden]: gate, then up */
    struct matrix *down;          /* [hidden, intermediate] */
};

struct weights {
    struct matrix *embedding;  /* [vocab, hidden] */
    struct matrix *head;       /* [vocab, hidden]; the same pointer as embedding when tied */
    struct buffer output_norm; /* float [hidden] */
    struct buffer rope_table;  /* float [max_model_len][rotary_dim], see rope_store_args */
    int32_t num_layers;
    struct layer_weights *layers; /* [num_layers] */
    size_t bytes;                 /* device memory taken, for the memory table */
};

/* Device memory that the weights take on a device that holds every matrix as `dtype`. */
size_t weights_needed(const struct model *model, int32_t max_model_len, enum dtype dtype);
/* max_model_len bounds the rope table. Returns when the device holds everything: ERROR_MODEL,
 * ERROR_MEMORY, or ERROR_DEVICE when the device failed. */
int weights_load(struct backend *backend, const struct model *model, int32_t max_model_len,
                 struct weights **out, struct error *err);
/* Accepts NULL. */
void weights_free(struct backend *backend, struct weights *weights);

#endif
