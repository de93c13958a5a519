/* The adapters that a rank's steps can use, on its device: a fixed number of slots, each with room
 * for the matrices of one adapter (lora_adapter.h). All slots of a matrix are one `struct matrix`,
 * in which a slot is what an expert is in a mixture (kernels/experts.h). Of a column-parallel
 * projection a rank has all of A and its outputs of B; of a row-parallel one its inputs of A and
 * all of B, so that its product is a partial sum like that of the projection itself.
 *
 * Rank's thread only. All memory is allocated by lora_slots_create; slots begin as zeros. */
#ifndef QUIRE_MODELS_LORA_LORA_SLOTS_H
#define QUIRE_MODELS_LORA_LORA_SLOTS_H

#include "kernels/backend.h"
#include "models/lora/lora_adapter.h"

struct lora_projection {
    struct matrix *a;                 /* [slots * parts * max_rank, inputs]; NULL: none */
    struct matrix *b[LORA_MAX_PARTS]; /* [slots * outputs, max_rank] */
    int32_t outputs[LORA_MAX_PARTS];  /* of the rank */
    int32_t num_parts;
};

struct lora_slots;

/* ERROR_MEMORY when they do not fit, ERROR_DEVICE. The arguments outlive the slots. */
int lora_slots_create(struct backend *backend, const struct model_config *config,
                      const struct model_shard *shard, const struct lora_shape *shape,
                      struct lora_slots **out, struct error *err);
void lora_slots_destroy(struct lora_slots *slots); /* accepts NULL */
/* Returns the device memory that they take on a device that holds every matrix as `held`, or with
 * DTYPE_NONE as the shape says; SIZE_MAX on overflow. */
size_t lora_slots_needed(const struct model_config *config, const struct model_shard *shard,
                         const struct lora_shape *shape, enum dtype held);
size_t lora_slots_bytes(const struct lora_slots *slots);
const struct lora_shape *lora_slots_shape(const struct lora_slots *slots);

/* Writes the rank's share of rows of the whole model (lora_adapter_copy), or nothing if it has none
 * of them. No step that was not waited for uses the slot. */
int lora_slots_write(struct lora_slots *slots, int32_t slot, const struct lora_rows *rows,
                     const void *data, struct error *err);

/* Returns what a projection has of all slots; NULL: adapters cannot have it. */
const struct lora_projection *lora_slots_find(const struct lora_slots *slots, int32_t layer,
                                              enum projection_role role);

#endif
