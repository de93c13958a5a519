#include "models/weights/tensor_source.h"

#include <string.h>

static bool fits(int64_t size) {
    return size > 0 && size <= INT32_MAX;
}

/* Sizes by a shape [experts, rows, cols], [rows, cols] or [cols]. */
static void measure(const struct tensor_info *tensor, bool has_experts, struct tensor_source *out) {
    const int64_t *shape = tensor->shape;
    int num_dims = tensor->num_dims - (has_experts ? 1 : 0);
    out->num_experts = 1;
    if (has_experts && tensor->num_dims == 3 && fits(shape[0])) {
        out->num_experts = (int32_t)shape[0];
        shape++;
    }
    bool is_matrix =
        (num_dims == 1 && fits(shape[0])) || (num_dims == 2 && fits(shape[0]) && fits(shape[1]));
    out->rows = !is_matrix ? 0 : num_dims == 1 ? 1 : (int32_t)shape[0];
    out->cols = !is_matrix ? 0 : (int32_t)shape[num_dims - 1];
}

/* --- One tensor, as it is --- */

static bool find_plain(const struct model *model, struct tensor_place place,
                       struct tensor_source *out) {
    const struct tensor_info *tensor = tensor_names_find(model, place, "weight");
    if (tensor == NULL)
        return false;
    out->dtype = tensor->dtype;
    out->num_tensors = 1;
    out->tensors[0] = tensor;
    measure(tensor, place.expert == TENSOR_ALL_EXPERTS, out);
    return true;
}

/* --- Inputs and outputs exchanged: [experts, cols, rows], as gpt-oss has them --- */

static const char *assemble_transposed(const struct tensor_source *source,
                                       const uint8_t *const raw[], int32_t first_row,
                                       int32_t num_rows, void *out) {
    size_t item = dtype_block_bytes(source->dtype), rows = (size_t)source->rows;
    uint8_t *dst = out;
    for (int32_t r = first_row; r < first_row + num_rows; r++) {
        const uint8_t *column = raw[0] + (size_t)tensor_source_file_row(source, r) * item;
        for (int32_t c = 0; c < source->cols; c++, column += rows * item, dst += item)
            memcpy(dst, column, item);
    }
    return NULL;
}

static bool find_transposed(const struct model *model, struct tensor_place place,
                            struct tensor_source *out) {
    if (!model->config.moe.is_transposed || place.expert != TENSOR_ALL_EXPERTS ||
        !find_plain(model, place, out) || out->dtype == DTYPE_NONE ||
        dtype_is_quantised(out->dtype))
        return false;
    int32_t rows = out->rows;
    out->rows = out->cols;
    out->cols = rows;
    out->alternates = place.role == TENSOR_EXPERT_GATE_UP;
    out->assemble = assemble_transposed;
    return true;
}

/* --- Keys' and values' parts of each head in one: [heads * (nope_dim + value_dim), kv_rank] --- */

/* Returns the rows of a head. */
static int32_t head_rows(const struct tensor_source *source) {
    return (int32_t)(source->tensors[0]->shape[0] / source->num_experts);
}

/* The rows of a head, of the matrix of both, by that one's own way. */
static const char *assemble_whole(const struct tensor_source *source, const uint8_t *const raw[],
                                  int32_t first_row, int32_t num_rows, void *out) {
    struct tensor_source whole = *source;
    whole.rows = head_rows(source);
    whole.cols = source->stored_cols;
    whole.dtype = source->whole_dtype;
    return source->assemble_whole(&whole, raw, first_row, num_rows, out);
}

/* One row of a head: as it is stored, or assembled in `buffer`. */
static const char *read_head_row(const struct tensor_source *source, const uint8_t *const raw[],
                                 int32_t row, size_t row_bytes, uint8_t *buffer,
                                 const uint8_t **out) {
    bool is_stored = source->assemble_whole == NULL;
    *out = is_stored ? raw[0] + (size_t)row * row_bytes : buffer;
    return is_stored ? NULL : assemble_whole(source, raw, row, 1, buffer);
}

/* The last rows of a head. */
static const char *assemble_head_values(const struct tensor_source *source,
                                        const uint8_t *const raw[], int32_t first_row,
                                        int32_t num_rows, void *out) {
    size_t row_bytes = dtype_row_bytes(source->dtype, (size_t)source->cols);
    int32_t first = head_rows(source) - source->rows + first_row;
    if (source->assemble_whole != NULL)
        return assemble_whole(source, raw, first, num_rows, out);
    memcpy(out, raw[0] + (size_t)first * row_bytes, (size_t)num_rows * row_bytes);
    return NULL;
}

/* The first rows of a head become columns. */
static const char *assemble_head_keys(const struct tensor_source *source,
                                      const uint8_t *const raw[], int32_t first_row,
                                      int32_t num_rows, void *out) {
    enum dtype stored = source->whole_dtype;
    size_t row_bytes = dtype_row_bytes(stored, (size_t)source->rows);
    size_t item = dtype_block_bytes(source->dtype);
    float values[KV_MAX_LATENT_ROW];
    uint8_t turned[KV_MAX_LATENT_ROW * sizeof(float)], row[KV_MAX_LATENT_ROW * sizeof(float)];
    for (int32_t c = 0; c < source->cols; c++) {
        const uint8_t *from;
        const char *wrong = read_head_row(source, raw, c, row_bytes, row, &from);
        if (wrong != NULL)
            return wrong;
        if (stored != source->dtype) {
            dtype_to_f32(stored, from, values, (size_t)source->rows);
            dtype_from_f32(source->dtype, values, turned, (size_t)source->rows);
            from = turned;
        }
        uint8_t *to = (uint8_t *)out + (size_t)c * item;
        for (size_t r = 0; r < (size_t)num_rows; r++, to += (size_t)source->cols * item)
            memcpy(to, from + ((size_t)first_row + r) * item, item);
    }
    return NULL;
}

/* Returns whether every head has its own scales, in the order of the heads. */
static bool has_scales_by_head(const struct tensor_source *source, int32_t num_heads) {
    for (int i = 1; i < source->num_tensors; i++) {
        const struct tensor_info *tensor = source->tensors[i];
        int64_t count = tensor != NULL && tensor->num_dims > 0 ? tensor->shape[0] : 0;
        if (tensor != NULL && (count == 0 || source->rows % count != 0 ||
                               source->rows / num_heads % (source->rows / count) != 0))
            return false;
    }
    return true;
}

/* The matrix of both. Codes of integers have their columns first, which heads do not divide. */
static bool find_kv_b(const struct model *model, int32_t layer, struct tensor_source *out) {
    const struct tensor_place place = {TENSOR_KV_B, layer, 0};
    if (!tensor_source_find_quantised(model, place, out)) {
        *out = (struct tensor_source){.dtype = DTYPE_NONE, .num_experts = 1};
        return find_plain(model, place, out);
    }
    bool is_fp8 = out->wrong != NULL || out->dtype == DTYPE_E4M3_128;
    if (!is_fp8 || !has_scales_by_head(out, model->config.num_heads)) {
        out->wrong = "keys and values of latent attention are supported as FP8 whose blocks do "
                     "not cross heads";
        out->wrong_tensor = 0;
    }
    return true;
}

/* Of quantised keys, whose blocks are in rows, columns are F16. */
static bool find_in_kv_b(const struct model *model, struct tensor_place place,
                         struct tensor_source *out) {
    const struct latent_config *latent = &model->config.latent;
    int32_t num_heads = model->config.num_heads;
    bool is_key = place.role == TENSOR_K_B;
    if ((!is_key && place.role != TENSOR_V_B) || !find_kv_b(model, place.layer, out))
        return false;
    if (out->wrong != NULL)
        return true;
    out->assemble_whole = out->assemble;
    out->whole_dtype = out->dtype;
    out->stored_rows = num_heads * (latent->nope_dim + latent->value_dim);
    out->stored_cols = latent->kv_rank;
    bool has_shape = out->rows == out->stored_rows && out->cols == out->stored_cols;
    out->num_experts = num_heads;
    out->rows = !has_shape ? 0 : is_key ? latent->kv_rank : latent->value_dim;
    out->cols = is_key ? latent->nope_dim : latent->kv_rank;
    if (is_key && out->dtype != DTYPE_NONE && dtype_is_quantised(out->dtype))
        out->dtype = DTYPE_F16;
    out->assemble = is_key ? assemble_head_keys : assemble_head_values;
    return true;
}

/* --- All --- */

typedef bool find_function(const struct model *model, struct tensor_place place,
                           struct tensor_source *out);

static find_function *const forms[] = {tensor_source_find_quantised, find_transposed, find_plain,
                                       find_in_kv_b};

bool tensor_source_find(const struct model *model, struct tensor_place place,
                        struct tensor_source *out) {
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        *out = (struct tensor_source){.dtype = DTYPE_NONE, .num_experts = 1};
        if (!forms[i](model, place, out))
            continue;
        out->bias = tensor_names_find(model, place, "bias");
        return true;
    }
    return false;
}
