#include "models/weights/tensor_source.h"

#include <string.h>

/* The row of the file's order that is row `row` of the source: gate's rows, then up's. */
static int32_t row_in_file(const struct tensor_source *source, int32_t row) {
    int32_t half = source->rows / 2;
    return !source->alternates ? row : row < half ? 2 * row : 2 * (row - half) + 1;
}

int32_t tensor_source_bias_index(const struct tensor_source *source, int32_t row) {
    return row_in_file(source, row);
}

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
        const uint8_t *column = raw[0] + (size_t)row_in_file(source, r) * item;
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

/* --- All --- */

typedef bool find_function(const struct model *model, struct tensor_place place,
                           struct tensor_source *out);

static find_function *const forms[] = {tensor_source_find_quantised, find_transposed, find_plain};

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
