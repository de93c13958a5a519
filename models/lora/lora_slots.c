#include "models/lora/lora_slots.h"

#include "config/base/checked.h"
#include "config/base/numbers.h"
#include "models/lora/lora_adapter_private.h"

#include <stdlib.h>
#include <string.h>

struct lora_slots {
    struct backend *backend;
    const struct model_config *config;
    const struct model_shard *shard;
    struct lora_shape shape;
    size_t bytes;
    struct lora_projection projections[]; /* [shard's layers][LORA_NUM_ROLES] */
};

/* --- The rank's share --- */

/* Of the outputs of a part, or of the inputs of a row-parallel projection. */
static struct row_span share_of_heads(const struct model_config *config,
                                      const struct model_shard *shard, int32_t part) {
    const int32_t d = config->head_dim;
    return part == 0 ? (struct row_span){shard->first_head * d, shard->num_heads * d}
                     : (struct row_span){shard->first_kv_head * d, shard->num_kv_heads * d};
}

static struct row_span share_of_outputs(const struct model_config *config,
                                        const struct model_shard *shard, int32_t layer,
                                        enum projection_role role, int32_t part) {
    if (role == PROJECTION_QKV)
        return share_of_heads(config, shard, part);
    if (role == PROJECTION_GATE_UP)
        return (struct row_span){shard->first_intermediate, shard->intermediate_size};
    return (struct row_span){0, lora_part_rows(config, layer, role, part)};
}

static struct row_span share_of_inputs(const struct model_config *config,
                                       const struct model_shard *shard, enum projection_role role) {
    if (role == PROJECTION_ATTENTION_OUT)
        return share_of_heads(config, shard, 0);
    if (role == PROJECTION_DOWN)
        return (struct row_span){shard->first_intermediate, shard->intermediate_size};
    return (struct row_span){0, lora_inputs(config, role)};
}

/* --- Memory --- */

static size_t matrix_bytes(const struct lora_shape *shape, enum dtype held, int32_t rows,
                           int32_t cols) {
    return (size_t)shape->num_slots * (size_t)rows * dtype_row_bytes(held, (size_t)cols);
}

static size_t projection_bytes(const struct model_config *config, const struct model_shard *shard,
                               const struct lora_shape *shape, enum dtype held, int32_t layer,
                               enum projection_role role) {
    const int32_t parts = lora_num_parts(config, layer, role);
    if (parts == 0)
        return 0;
    size_t bytes = matrix_bytes(shape, held, parts * shape->max_rank,
                                share_of_inputs(config, shard, role).num_rows);
    for (int32_t p = 0; p < parts; p++)
        bytes += matrix_bytes(shape, held, share_of_outputs(config, shard, layer, role, p).num_rows,
                              shape->max_rank);
    return bytes;
}

/* Sizes are bounded by those of the configuration: a layer's sum does not overflow. */
size_t lora_slots_needed(const struct model_config *config, const struct model_shard *shard,
                         const struct lora_shape *shape, enum dtype held) {
    size_t bytes = 0;
    if (shape->num_slots == 0)
        return 0;
    held = held == DTYPE_NONE ? shape->dtype : held;
    for (int32_t i = 0; i < shard->num_layers; i++)
        for (int r = 0; r < LORA_NUM_ROLES; r++)
            if (!checked_add(bytes,
                             projection_bytes(config, shard, shape, held, shard->first_layer + i,
                                              lora_roles[r]),
                             &bytes))
                return SIZE_MAX;
    return bytes;
}

/* All slots' rows, [slots * rows, cols], which begin as zeros. */
static int create_matrix(struct lora_slots *slots, int32_t rows, int32_t cols, struct matrix **out,
                         struct error *err) {
    struct matrix_part parts[LORA_MAX_SLOTS];
    struct backend *b = slots->backend;
    const size_t slot_bytes = (size_t)rows * dtype_row_bytes(slots->shape.dtype, (size_t)cols);
    for (int32_t i = 0; i < slots->shape.num_slots; i++)
        parts[i] = (struct matrix_part){.dtype = slots->shape.dtype, .rows = rows};
    if (b->ops->matrix_create(b, parts, slots->shape.num_slots, cols, MATRIX_GROUPED, out, err) !=
        0)
        return -1;
    void *zeros = calloc(1, slot_bytes);
    int status = zeros != NULL ? 0 : error_set(err, ERROR_MEMORY, "no memory for adapters");
    for (int32_t i = 0; i < slots->shape.num_slots && status == 0; i++)
        status = b->ops->matrix_fill(b, *out, i * rows, rows, zeros, err);
    free(zeros);
    return status;
}

static int create_projection(struct lora_slots *slots, int32_t layer, enum projection_role role,
                             struct lora_projection *out, struct error *err) {
    const struct model_config *config = slots->config;
    const int32_t max_rank = slots->shape.max_rank;
    out->num_parts = lora_num_parts(config, layer, role);
    if (out->num_parts == 0)
        return 0;
    if (create_matrix(slots, out->num_parts * max_rank,
                      share_of_inputs(config, slots->shard, role).num_rows, &out->a, err) != 0)
        return -1;
    for (int32_t p = 0; p < out->num_parts; p++) {
        out->outputs[p] = share_of_outputs(config, slots->shard, layer, role, p).num_rows;
        if (create_matrix(slots, out->outputs[p], max_rank, &out->b[p], err) != 0)
            return -1;
    }
    return 0;
}

int lora_slots_create(struct backend *backend, const struct model_config *config,
                      const struct model_shard *shard, const struct lora_shape *shape,
                      struct lora_slots **out, struct error *err) {
    size_t count = (size_t)shard->num_layers * LORA_NUM_ROLES;
    struct lora_slots *slots = calloc(1, sizeof(*slots) + count * sizeof(slots->projections[0]));
    if (slots == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for adapters");
    slots->backend = backend;
    slots->config = config;
    slots->shard = shard;
    slots->shape = *shape;
    slots->bytes = lora_slots_needed(
        config, shard, shape,
        backend->activation_dtype == DTYPE_F32 ? DTYPE_NONE : backend->activation_dtype);
    for (size_t i = 0; i < count; i++)
        if (create_projection(slots, shard->first_layer + (int32_t)(i / LORA_NUM_ROLES),
                              lora_roles[i % LORA_NUM_ROLES], &slots->projections[i], err) != 0) {
            lora_slots_destroy(slots);
            return -1;
        }
    if (backend->ops->synchronize(backend, err) != 0) {
        lora_slots_destroy(slots);
        return -1;
    }
    *out = slots;
    return 0;
}

void lora_slots_destroy(struct lora_slots *slots) {
    if (slots == NULL)
        return;
    struct backend *b = slots->backend;
    for (size_t i = 0; i < (size_t)slots->shard->num_layers * LORA_NUM_ROLES; i++) {
        b->ops->matrix_destroy(b, slots->projections[i].a);
        for (int p = 0; p < LORA_MAX_PARTS; p++)
            b->ops->matrix_destroy(b, slots->projections[i].b[p]);
    }
    free(slots);
}

size_t lora_slots_bytes(const struct lora_slots *slots) {
    return slots->bytes;
}

const struct lora_shape *lora_slots_shape(const struct lora_slots *slots) {
    return &slots->shape;
}

const struct lora_projection *lora_slots_find(const struct lora_slots *slots, int32_t layer,
                                              enum projection_role role) {
    for (int r = 0; r < LORA_NUM_ROLES; r++)
        if (lora_roles[r] == role) {
            const struct lora_projection *found =
                &slots->projections[(layer - slots->shard->first_layer) * LORA_NUM_ROLES + r];
            return found->num_parts > 0 ? found : NULL;
        }
    return NULL;
}

/* --- Writing --- */

/* Columns first_row .. of rows of A, which lie `row_bytes` apart. */
static int fill_columns(struct lora_slots *slots, struct matrix *matrix, int32_t first_row,
                        int32_t num_rows, struct row_span cols, size_t row_bytes, const char *data,
                        struct error *err) {
    const enum dtype dtype = slots->shape.dtype;
    const size_t own_bytes = dtype_row_bytes(dtype, (size_t)cols.num_rows);
    const size_t offset = dtype_row_bytes(dtype, (size_t)cols.first_row);
    struct backend *b = slots->backend;
    if (own_bytes == row_bytes)
        return b->ops->matrix_fill(b, matrix, first_row, num_rows, data, err);
    int status = 0;
    for (int32_t i = 0; i < num_rows && status == 0; i++, data += row_bytes)
        status = b->ops->matrix_fill(b, matrix, first_row + i, 1, data + offset, err);
    return status;
}

int lora_slots_write(struct lora_slots *slots, int32_t slot, const struct lora_rows *rows,
                     const void *data, struct error *err) {
    const struct model_config *config = slots->config;
    struct backend *b = slots->backend;
    if (!model_shard_has_layer(slots->shard, rows->layer))
        return 0;
    const struct lora_projection *found = lora_slots_find(slots, rows->layer, rows->role);
    const size_t row_bytes = lora_rows_bytes(config, &slots->shape, rows) / (size_t)rows->num_rows;
    if (rows->matrix == 0)
        return fill_columns(slots, found->a,
                            slot * found->num_parts * slots->shape.max_rank + rows->first_row,
                            rows->num_rows, share_of_inputs(config, slots->shard, rows->role),
                            row_bytes, data, err);
    const int32_t part = rows->matrix - 1;
    const struct row_span own =
        share_of_outputs(config, slots->shard, rows->layer, rows->role, part);
    const int32_t first = max_int32(own.first_row, rows->first_row);
    const int32_t end = min_int32(own.first_row + own.num_rows, rows->first_row + rows->num_rows);
    if (first >= end)
        return 0;
    return b->ops->matrix_fill(
        b, found->b[part], slot * found->outputs[part] + first - own.first_row, end - first,
        (const char *)data + (size_t)(first - rows->first_row) * row_bytes, err);
}
