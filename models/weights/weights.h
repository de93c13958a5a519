/* The weights of one rank on its device: its share of a model (model_shard.h), bound by name from a
 * model file and checked for shape and dtype. Created and used by the rank's thread. Tensors are
 * read in chunks, so that loading needs the weights' own memory and a few chunks. */
#ifndef QUIRE_MODELS_WEIGHTS_WEIGHTS_H
#define QUIRE_MODELS_WEIGHTS_WEIGHTS_H

#include "kernels/backend.h"
#include "models/weights/model_shard.h"

struct weights_reader; /* weights_reader.h */
struct packed_cache;   /* packed_cache.h */

/* Where packed weights are kept between two starts (packed_cache.h). */
struct packed_cache_place {
    const char *folder;
    uint64_t max_bytes; /* of the files there; those used least recently are deleted */
    const char *build;  /* of this program (config/build_hash.h) */
};

struct weights_options {
    int32_t max_model_len; /* positions in the rope tables; > 0 */
    /* DTYPE_Q8_0: float matrices (including the embedding and the head) are held as Q8_0 if a row
     * is a whole number of blocks. DTYPE_NONE: all are held in the file's types. */
    enum dtype quantization;
    bool cuts_key_bias; /* see key_bias.h, for a quantised cache: also balances the keys' norms */
    const struct packed_cache_place *packed_cache; /* outlives the weights; NULL: none */
    const struct weights *shared; /* to load those of an MTP layer: of the model that it drafts for.
                                     They outlive its own. NULL for others */
};

/* A weight matrix of a layer, or a rank's share of it; of many experts, one after the other. */
struct projection {
    enum projection_role role;
    int32_t layer;
    struct matrix *matrix; /* [outputs, inputs]; NULL: the layer has no such product */
};

/* Norms of hidden states have as many biases after their weights if the configuration says so
 * (norm_bias). A norm that the model does not have is a zeroed buffer. Sizes are those of the
 * rank's share; layers of other stages are empty. */
struct layer_weights {
    struct buffer attention_norm;      /* float [hidden] */
    struct buffer attention_post_norm; /* float [hidden] */
    struct projection qkv;             /* [(num_heads + 2 num_kv_heads) * head_dim, hidden] */
    struct buffer q_norm;              /* float [head_dim], or [num_heads * head_dim] if full */
    struct buffer k_norm;              /* float [head_dim], or [num_kv_heads * head_dim] if full */
    struct buffer key_bias;            /* struct key_bias [num_kv_heads]; empty if none is cut */
    struct key_biases key_biases;      /* these biases, and how they rotate; heads NULL: none */
    struct buffer sinks;               /* float [num_heads] */
    struct projection attention_out;   /* [hidden, num_heads * head_dim] */
    /* Of latent attention, where qkv is q alone: [num_heads * (nope_dim + rotary_dim), q_rank or
     * hidden]. */
    struct projection q_a;        /* [q_rank, hidden] */
    struct buffer q_a_norm;       /* float [q_rank] */
    struct projection kv_a;       /* [kv_rank + rotary_dim, hidden] */
    struct buffer kv_a_norm;      /* float [kv_rank] */
    struct projection key_up;     /* for each head [kv_rank, nope_dim]: from q to its latent form */
    struct projection value_up;   /* for each head [value_dim, kv_rank] */
    struct buffer ffn_norm;       /* float [hidden] */
    struct projection gate_up;    /* [2 * intermediate, hidden]: gate, then up */
    struct projection down;       /* [hidden, intermediate]; both of the shared expert, if the
                                     layer is sparse */
    struct projection router;     /* [experts of the model, hidden] */
    struct buffer selection_bias; /* float [experts of the model] */
    struct projection expert_gate_up; /* for each expert [2 * expert_size, hidden] */
    struct projection expert_down;    /* for each expert [hidden, expert_size] */
    struct projection shared_router;  /* [1, hidden] */
    struct buffer ffn_post_norm;      /* float [hidden] */
};

/* Norm weights are the factors of a row: norm_plus_one has been added, and post-norms and the
 * biases of attention_out and down include residual_scale. */
struct weights {
    struct matrix *embedding;  /* [vocab, hidden], of the rank's rows; NULL on a stage without it */
    struct matrix *head;       /* likewise; the same pointer as embedding when tied */
    struct buffer output_norm; /* float [hidden]; empty on a stage without the head */
    /* float [max_model_len][rotary_dim] for each of the configuration's ropes, see rope.h */
    struct buffer rope_tables[MODEL_MAX_ROPES];
    /* Their columns, [rotary_dim][max_model_len rounded up], where key biases are cut. */
    struct buffer rope_columns[MODEL_MAX_ROPES];
    /* Of an MTP layer, whose output_norm is its own. */
    bool shares_embedding, shares_head;          /* owned by other weights */
    struct buffer embedding_norm, hidden_norm;   /* float [hidden] */
    struct matrix *from_embedding, *from_hidden; /* [hidden, hidden] each */
    int32_t num_layers;                          /* of the model */
    struct layer_weights *layers;                /* [num_layers] */
    size_t bytes;                                /* device memory taken, for the memory table */
    size_t mapped_bytes;         /* of it, pages of a file, which the system counts as available */
    struct packed_cache *packed; /* that has or writes them; NULL: none */
};

/* Returns the memory that the rank's weights take on its backend; SIZE_MAX on overflow. */
size_t weights_needed(const struct model *model, const struct model_shard *shard,
                      const struct weights_options *options, const struct backend *backend);

/* Returns the rows of the rank's head, which are the columns of its logits: one for each of its
 * tokens, then, if it is the only rank, zeros up to a multiple of the backend's head_rows_step. */
int32_t weights_head_rows(const struct model_shard *shard, int32_t head_rows_step);

/* Passes the rank's share of every tensor to the backend. Every rank of the model calls it, with
 * the same reader, which reads each tensor once. Fails with ERROR_MODEL for a tensor that is
 * missing, unexpected, or of another shape or type than the configuration says, or a file that has
 * become shorter; with ERROR_MEMORY, ERROR_IO or ERROR_DEVICE. An error of one rank is also one of
 * all ranks that still read. The model and the reader may be closed afterwards. The backend's next
 * wait also waits for the device's remaining work, and reports its errors. */
int weights_load(struct backend *backend, const struct model *model,
                 const struct model_shard *shard, struct weights_reader *reader,
                 const struct weights_options *options, struct weights **out, struct error *err);
/* The same for the only rank, with its own reader; it also waits for the device. */
int weights_load_alone(struct backend *backend, const struct model *model,
                       const struct model_shard *shard, const struct weights_options *options,
                       struct weights **out, struct error *err);
/* Accepts NULL. */
void weights_free(struct backend *backend, struct weights *weights);

#endif
