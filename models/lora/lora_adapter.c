#include "models/lora/lora_adapter_private.h"

#include "config/base/check.h"
#include "config/base/numbers.h"

#include <stdlib.h>
#include <string.h>

/* --- Sizes --- */

int32_t lora_num_parts(const struct model_config *config, int32_t layer,
                       enum projection_role role) {
    bool is_latent = config->latent.kv_rank > 0, is_sparse = config->layers[layer].is_sparse;
    switch (role) {
    case PROJECTION_QKV:
        return is_latent ? 0 : 3;
    case PROJECTION_ATTENTION_OUT:
        return is_latent ? 0 : 1;
    case PROJECTION_GATE_UP:
        return is_sparse ? 0 : 2;
    case PROJECTION_DOWN:
        return is_sparse ? 0 : 1;
    default:
        return 0;
    }
}

int32_t lora_part_rows(const struct model_config *config, int32_t layer, enum projection_role role,
                       int32_t part) {
    CHECK(part < lora_num_parts(config, layer, role));
    if (role == PROJECTION_QKV)
        return (part == 0 ? config->num_heads : config->num_kv_heads) * config->head_dim;
    return role == PROJECTION_GATE_UP ? config->intermediate_size : config->hidden_size;
}

int32_t lora_inputs(const struct model_config *config, enum projection_role role) {
    return role == PROJECTION_ATTENTION_OUT ? config->num_heads * config->head_dim
           : role == PROJECTION_DOWN        ? config->intermediate_size
                                            : config->hidden_size;
}

static size_t role_index(enum projection_role role) {
    size_t i = 0;
    while (lora_roles[i] != role)
        i++;
    return i;
}

struct lora_matrices *lora_matrices_at(const struct lora_adapter *adapter, int32_t layer,
                                       enum projection_role role, int32_t part) {
    size_t at = ((size_t)layer * LORA_NUM_ROLES + role_index(role)) * LORA_MAX_PARTS;
    return &adapter->matrices[at + (size_t)part];
}

/* --- Rows of a slot --- */

/* Returns the rows of a matrix of a projection, and the elements of one of its rows. */
static int32_t matrix_rows(const struct model_config *config, const struct lora_shape *shape,
                           const struct lora_rows *at, int32_t *out_cols) {
    bool is_a = at->matrix == 0;
    *out_cols = is_a ? lora_inputs(config, at->role) : shape->max_rank;
    return is_a ? lora_num_parts(config, at->layer, at->role) * shape->max_rank
                : lora_part_rows(config, at->layer, at->role, at->matrix - 1);
}

/* Moves to the first row of the next matrix; false: there is none. */
static bool next_matrix(const struct model_config *config, struct lora_rows *rows) {
    size_t role = role_index(rows->role);
    rows->first_row = rows->num_rows = 0;
    if (rows->matrix < lora_num_parts(config, rows->layer, rows->role)) {
        rows->matrix++;
        return true;
    }
    rows->matrix = 0;
    do {
        if (++role == LORA_NUM_ROLES) {
            role = 0;
            if (++rows->layer == config->num_layers)
                return false;
        }
        rows->role = lora_roles[role];
    } while (lora_num_parts(config, rows->layer, rows->role) == 0);
    return true;
}

/* Zeroed rows name the first matrix, which a sparse model's first layer may lack. */
static bool is_at_matrix(const struct model_config *config, const struct lora_rows *rows) {
    return rows->layer < config->num_layers &&
           lora_num_parts(config, rows->layer, rows->role) >= rows->matrix &&
           lora_num_parts(config, rows->layer, rows->role) > 0;
}

bool lora_rows_next(const struct model_config *config, const struct lora_shape *shape,
                    size_t max_bytes, struct lora_rows *rows) {
    int32_t cols, all;
    _Static_assert(PROJECTION_QKV == 0, "zeroed rows are of it");
    rows->first_row += rows->num_rows;
    if (!is_at_matrix(config, rows) && !next_matrix(config, rows))
        return false;
    all = matrix_rows(config, shape, rows, &cols);
    if (rows->first_row == all) {
        if (!next_matrix(config, rows))
            return false;
        all = matrix_rows(config, shape, rows, &cols);
    }
    size_t fit = max_bytes / dtype_row_bytes(shape->dtype, (size_t)cols);
    int32_t left = all - rows->first_row;
    rows->num_rows = fit >= (size_t)left ? left : max_int32((int32_t)fit, 1);
    return true;
}

size_t lora_rows_bytes(const struct model_config *config, const struct lora_shape *shape,
                       const struct lora_rows *rows) {
    int32_t cols;
    matrix_rows(config, shape, rows, &cols);
    return (size_t)rows->num_rows * dtype_row_bytes(shape->dtype, (size_t)cols);
}

size_t lora_adapter_max_bytes(const struct model_config *config, const struct lora_shape *shape) {
    struct lora_rows rows = {0};
    size_t bytes = sizeof(struct lora_adapter) + (size_t)config->num_layers * LORA_NUM_ROLES *
                                                     LORA_MAX_PARTS * sizeof(struct lora_matrices);
    while (lora_rows_next(config, shape, SIZE_MAX, &rows))
        bytes += lora_rows_bytes(config, shape, &rows);
    return bytes;
}

/* One row of a slot; NULL: zeros. *out_bytes: what the adapter has of it. */
static const void *row_of(const struct lora_adapter *adapter, const struct lora_rows *rows,
                          int32_t row, size_t *out_bytes) {
    const int32_t max_rank = adapter->shape.max_rank, part = rows->matrix - 1;
    const enum dtype dtype = adapter->shape.dtype;
    const struct lora_matrices *m;
    if (rows->matrix > 0) {
        m = lora_matrices_at(adapter, rows->layer, rows->role, part);
        *out_bytes = dtype_row_bytes(dtype, (size_t)m->rank);
        return m->rank > 0 ? (const char *)m->b + (size_t)row * *out_bytes : NULL;
    }
    m = lora_matrices_at(adapter, rows->layer, rows->role, row / max_rank);
    *out_bytes = dtype_row_bytes(dtype, (size_t)lora_inputs(adapter->config, rows->role));
    return row % max_rank < m->rank ? (const char *)m->a + (size_t)(row % max_rank) * *out_bytes
                                    : NULL;
}

void lora_adapter_copy(const struct lora_adapter *adapter, const struct lora_rows *rows,
                       void *out) {
    const size_t all = lora_rows_bytes(adapter->config, &adapter->shape, rows);
    const size_t row_bytes = all / (size_t)rows->num_rows;
    char *to = out;
    for (int32_t i = 0; i < rows->num_rows; i++, to += row_bytes) {
        size_t bytes = 0;
        const void *row = row_of(adapter, rows, rows->first_row + i, &bytes);
        memset(to, 0, row_bytes);
        if (row != NULL)
            memcpy(to, row, bytes);
    }
}

/* --- The whole --- */

int lora_set_digest(struct lora_adapter *adapter, struct error *err) {
    struct content_hash *hash = content_hash_create();
    if (hash == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for the digest of an adapter");
    content_hash_add(hash, &adapter->shape.dtype, sizeof(adapter->shape.dtype));
    for (int32_t layer = 0; layer < adapter->config->num_layers; layer++)
        for (int r = 0; r < LORA_NUM_ROLES; r++)
            for (int32_t p = 0; p < lora_num_parts(adapter->config, layer, lora_roles[r]); p++) {
                const struct lora_matrices *m = lora_matrices_at(adapter, layer, lora_roles[r], p);
                const size_t rank = (size_t)m->rank;
                const size_t inputs = (size_t)lora_inputs(adapter->config, lora_roles[r]);
                const size_t outputs =
                    (size_t)lora_part_rows(adapter->config, layer, lora_roles[r], p);
                content_hash_add(hash, &m->rank, sizeof(m->rank));
                if (rank == 0)
                    continue;
                content_hash_add(hash, m->a, dtype_row_bytes(adapter->shape.dtype, rank * inputs));
                content_hash_add(hash, m->b, dtype_row_bytes(adapter->shape.dtype, rank * outputs));
            }
    content_hash_digest(hash, adapter->digest);
    content_hash_destroy(hash);
    return 0;
}

void lora_adapter_close(struct lora_adapter *adapter) {
    if (adapter == NULL)
        return;
    size_t count = (size_t)adapter->config->num_layers * LORA_NUM_ROLES * LORA_MAX_PARTS;
    for (size_t i = 0; adapter->matrices != NULL && i < count; i++) {
        free(adapter->matrices[i].a);
        free(adapter->matrices[i].b);
    }
    free(adapter->matrices);
    free(adapter);
}

int32_t lora_adapter_rank(const struct lora_adapter *adapter) {
    return adapter->rank;
}

size_t lora_adapter_bytes(const struct lora_adapter *adapter) {
    return adapter->bytes;
}

const uint8_t *lora_adapter_digest(const struct lora_adapter *adapter) {
    return adapter->digest;
}
