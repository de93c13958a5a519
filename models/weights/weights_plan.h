/* Private to models/weights: which tensors make up the weights of a model, and which part of each a
 * rank keeps. Pure: uses only the headers of the file, reads no tensor.
 *
 * Biases, fused matrices and tensors of all experts are looked up in the first layer of the same
 * kind, sparse or dense; the others must agree. */
#ifndef QUIRE_MODELS_WEIGHTS_WEIGHTS_PLAN_H
#define QUIRE_MODELS_WEIGHTS_WEIGHTS_PLAN_H

#include "kernels/backend.h"
#include "models/weights/model_shard.h"
#include "models/weights/tensor_source.h"

#define WEIGHTS_MAX_PARTS 3
#define WEIGHTS_MAX_SPANS 3
#define WEIGHTS_MAX_NORMS 8

/* One source (tensor_source.h) and its kept rows, one span after the other. */
struct weights_part {
    struct tensor_place place; /* of experts: of all, or of the first */
    int32_t rows;              /* of the source, of an expert */
    bool biased;               /* the file has a bias for it */
    int num_spans;
    struct row_span spans[WEIGHTS_MAX_SPANS];
};

/* A matrix of the rank: the kept rows of its parts, stacked, restricted to the columns first_col ..
 * first_col + num_cols - 1. Of experts: this for each of the rank's, one expert after the other. */
struct weights_matrix {
    int32_t num_experts; /* of the model; 1 for other matrices */
    struct row_span own; /* the rank's experts */
    int num_parts;
    struct weights_part parts[WEIGHTS_MAX_PARTS];
    int32_t cols; /* of the tensors */
    int32_t first_col, num_cols;
    int32_t padding_rows; /* zeros after the last part */
    bool is_grouped;      /* of experts or of heads (kernels/backend.h, enum matrix_use) */
    bool keeps_type;      /* never requantised */
    float bias_scale;     /* multiplies the biases; 0: another rank adds them */
    struct row_span keys; /* of a matrix of q, k and v, the kept rows of k */
};

/* A vector, of any floating type in the file. The rank keeps the elements first .. first + count -
 * 1, each as (element + added) * scale. */
struct weights_norm {
    struct tensor_place place;
    int32_t width; /* of the tensor */
    int32_t first, count;
    float added, scale;
    bool biased;   /* as many elements of a bias follow, each times `scale` */
    size_t offset; /* of its struct buffer in struct layer_weights */
};

/* Returns whether a layer has this product. */
bool weights_plan_has_projection(const struct model_config *config, enum projection_role role,
                                 int32_t layer);
/* The matrix of a layer's product, which it has. */
struct weights_matrix weights_plan_projection(const struct model *model,
                                              const struct model_shard *shard,
                                              enum projection_role role, int32_t layer);
/* Of an MTP layer, the part of its projection for hidden states, or that for embeddings. */
struct weights_matrix weights_plan_mtp_projection(const struct model *model, bool is_of_hidden);
/* The matrix of TENSOR_EMBEDDING or TENSOR_HEAD, or of an MTP layer's own. The one used as the head
 * is padded: its rows are a multiple of head_rows_step, as the backend requires. */
struct weights_matrix weights_plan_vocab(const struct model *model, const struct model_shard *shard,
                                         enum tensor_role role, int32_t head_rows_step);
/* Fills in the norms that a layer has; returns their number. */
int weights_plan_norms(const struct model_config *config, const struct model_shard *shard,
                       int32_t layer, struct weights_norm out[static WEIGHTS_MAX_NORMS]);
struct weights_norm weights_plan_output_norm(const struct model_config *config);
/* Those of an MTP layer besides a layer's: of embeddings, of hidden states, and before the head. */
#define WEIGHTS_MTP_NORMS 3
void weights_plan_mtp_norms(const struct model *model,
                            struct weights_norm out[static WEIGHTS_MTP_NORMS]);

/* Returns where the rows of a part are: of this expert (of num_experts), or of all if the file has
 * them in one. False when they are nowhere. */
bool weights_part_find(const struct model *model, const struct weights_part *part, int32_t expert,
                       struct tensor_source *out);

/* Returns the device memory of the kept rows in these types, with padding in the first part's type.
 * Nothing is counted if a part is of DTYPE_NONE, if the backend cannot hold such rows, or if memory
 * is short. */
size_t weights_plan_matrix_bytes(const struct weights_matrix *plan,
                                 const enum dtype types[static WEIGHTS_MAX_PARTS],
                                 const struct backend *backend);

/* Returns the bytes of its buffer. */
size_t weights_norm_bytes(const struct weights_norm *norm);

/* Returns the number of kept rows of a part. */
int32_t weights_part_rows(const struct weights_part *part);

#endif
