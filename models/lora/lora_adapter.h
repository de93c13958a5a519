/* A low-rank adapter (LoRA; Hu et al., 2021, arXiv:2106.09685) in host memory: for each projection
 * W of a layer that it adapts, W x becomes W x + scale B (A x). Read from a PEFT folder
 * (adapter_config.json, adapter_model.safetensors) or a GGUF file of llama.cpp
 * (convert_lora_to_gguf.py), for one model, whose own format may be the other one.
 *
 * Projections that the engine multiplies at once (q, k, v; gate, up) are the PARTS of one: the A of
 * all parts are stacked, each part has its own B. What an adapter does not adapt is zeros. The rows
 * are those of the whole model; a rank takes its share of them (lora_slots.h).
 *
 * Immutable once open; any thread. */
#ifndef QUIRE_MODELS_LORA_LORA_ADAPTER_H
#define QUIRE_MODELS_LORA_LORA_ADAPTER_H

#include "kernels/experts.h"
#include "models/config/model.h"
#include "models/files/content_hash.h"
#include "models/weights/model_shard.h"

#define LORA_MAX_PARTS ADAPTER_MAX_PARTS
#define LORA_MAX_RANK 256 /* of an adapter */
#define LORA_RANK_STEP 8  /* a slot's rank is a multiple of it */
#define LORA_MAX_SLOTS 256

/* What a server has room for. */
struct lora_shape {
    int32_t num_slots; /* adapters that steps can use at the same time; 0: none, and no others
                          are read */
    int32_t max_rank;  /* of a slot: every adapter is filled up with zeros to it */
    enum dtype dtype;  /* of a slot's numbers: DTYPE_F32, F16 or BF16 */
};

/* Rows of one of a projection's matrices, as a slot has them. */
struct lora_rows {
    int32_t layer;
    enum projection_role role;
    int32_t matrix; /* 0: A, [parts * max_rank, inputs]; 1 + p: B of part p, [outputs, max_rank] */
    int32_t first_row, num_rows;
};

struct lora_adapter;

/* Reads the files and checks them against the model and the shape. The scale (alpha / rank, or
 * alpha / sqrt(rank) of rsLoRA) is multiplied into B, and so is residual_scale where the result of
 * a projection is added to the hidden states with it. Fails with ERROR_MODEL and one line: which
 * file, tensor or setting, what it is, what is allowed. (Not taken: DoRA, modules_to_save,
 * embeddings and the head, experts, biases, a rank beyond max_rank, numbers that are not finite or
 * too large for the dtype, modules that the model does not have.) */
int lora_adapter_open(const char *path, const struct model *model, const struct lora_shape *shape,
                      struct lora_adapter **out, struct error *err);
void lora_adapter_close(struct lora_adapter *adapter); /* accepts NULL */

int32_t lora_adapter_rank(const struct lora_adapter *adapter); /* the largest of its matrices */
size_t lora_adapter_bytes(const struct lora_adapter *adapter); /* of host memory */
/* Returns the most that one of this shape has. */
size_t lora_adapter_max_bytes(const struct model_config *config, const struct lora_shape *shape);
/* Of its numbers and their places: equal for adapters that give equal answers. */
const uint8_t *lora_adapter_digest(const struct lora_adapter *adapter); /* [CONTENT_HASH_BYTES] */

/* Moves to the rows that follow: all of a slot's, in an order of its own, in pieces of at most
 * max_bytes (but at least a row). The first call gets zeroed rows. Returns false after the last. */
bool lora_rows_next(const struct model_config *config, const struct lora_shape *shape,
                    size_t max_bytes, struct lora_rows *rows);
/* Returns their bytes, num_rows rows of dtype. */
size_t lora_rows_bytes(const struct model_config *config, const struct lora_shape *shape,
                       const struct lora_rows *rows);
/* Writes the adapter's, filled up with zeros. */
void lora_adapter_copy(const struct lora_adapter *adapter, const struct lora_rows *rows, void *out);

/* Returns how many parts a projection has, and with `part` the outputs of one; 0: it is none that
 * adapters can have. */
int32_t lora_num_parts(const struct model_config *config, int32_t layer, enum projection_role role);
int32_t lora_part_rows(const struct model_config *config, int32_t layer, enum projection_role role,
                       int32_t part);

#endif
