/* The weights of one rank on its device, bound by name from a model file and checked for shape and
 * dtype. Created and used by the rank's thread. Tensors are read in chunks, so that loading
 * takes the weights' own memory and a few MiB. */
#ifndef QUIRE_MODELS_WEIGHTS_H
#define QUIRE_MODELS_WEIGHTS_H

#include "kernels/backend.h"
#include "models/files/content_hash.h"
#include "models/model.h"

struct weights_options {
    int32_t max_model_len; /* positions in the rope tables; > 0 */
    /* DTYPE_Q8_0: float matrices (the embedding and the head too) are held as Q8_0, where a row is
     * a whole number of blocks. DTYPE_NONE: all are held as the file stores them. */
    enum dtype quantization;
};

/* A norm the model does not have is a zeroed buffer. */
struct layer_weights {
    struct buffer attention_norm;      /* float [hidden] */
    struct buffer attention_post_norm; /* float [hidden] */
    struct matrix *qkv;                /* [(num_heads + 2 num_kv_heads) * head_dim, hidden] */
    struct buffer q_norm;              /* float [head_dim], or [num_heads * head_dim] if full */
    struct buffer k_norm;              /* float [head_dim], or [num_kv_heads * head_dim] if full */
    struct matrix *attention_out;      /* [hidden, num_heads * head_dim] */
    struct buffer ffn_norm;            /* float [hidden] */
    struct matrix *gate_up;            /* [2 * intermediate, hidden]: gate, then up */
    struct matrix *down;               /* [hidden, intermediate] */
    struct buffer ffn_post_norm;       /* float [hidden] */
};

/* Norm weights are what a row is multiplied by: norm_plus_one has been added, and post-norms and
 * the biases of attention_out and down carry residual_scale. */
struct weights {
    struct matrix *embedding;  /* [vocab, hidden] */
    struct matrix *head;       /* [vocab, hidden]; the same pointer as embedding when tied */
    struct buffer output_norm; /* float [hidden] */
    /* float [max_model_len][rotary_dim] for each of the configuration's ropes, see rope.h */
    struct buffer rope_tables[MODEL_MAX_ROPES];
    int32_t num_layers;
    struct layer_weights *layers; /* [num_layers] */
    size_t bytes;                 /* device memory taken, for the memory table */
    /* Covers the model's settings and name, type, shape and bytes of every tensor loaded: equal for
     * models that are the same in everything that could change an answer. */
    uint8_t digest[CONTENT_HASH_BYTES];
};

/* Returns the device memory that the weights take on a device that holds every matrix as `held`, or
 * with DTYPE_NONE as the options say; SIZE_MAX when that cannot be. */
size_t weights_needed(const struct model *model, const struct weights_options *options,
                      enum dtype held);

/* Reads every tensor once and hands it to the backend. ERROR_MODEL for a tensor that is missing,
 * not expected or of another shape or type than the configuration says, or a file that has become
 * shorter; ERROR_MEMORY, ERROR_IO, ERROR_DEVICE. The model may be closed afterwards. */
int weights_load(struct backend *backend, const struct model *model,
                 const struct weights_options *options, struct weights **out, struct error *err);
/* Accepts NULL. */
void weights_free(struct backend *backend, struct weights *weights);

#endif
