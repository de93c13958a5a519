/* Any bytes as a safetensors file: parsed, and every tensor read. What is accepted keeps the
 * format's promise that each byte behind the header belongs to exactly one tensor. Then its
 * matrices are looked for and assembled as those of every kind of quantised checkpoint. */
#include "models/weights/tensor_source.h"
#include "tests/fuzz/tensor_touch.h"

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void check_cover(const struct tensor_file *file, size_t data_bytes) {
    size_t covered = 0;
    for (size_t i = 0; i < tensor_file_num_tensors(file); i++)
        covered += tensor_file_tensor(file, i)->bytes;
    if (covered != data_bytes)
        abort();
}

/* The first and the last row of what can be assembled. */
static void assemble(const struct tensor_source *source, const uint8_t *data) {
    const uint8_t *raw[TENSOR_SOURCE_MAX_TENSORS] = {NULL};
    size_t row_bytes = dtype_row_bytes(source->dtype, (size_t)source->cols);
    void *row = malloc(row_bytes);
    for (int i = 0; i < source->num_tensors; i++) {
        const struct tensor_info *tensor = source->tensors[i];
        size_t part = (size_t)(source->num_experts - 1);
        if (tensor != NULL)
            raw[i] = data + tensor->offset + part * tensor_source_part_bytes(source, i);
    }
    if (row != NULL) {
        source->assemble(source, raw, 0, 1, row);
        source->assemble(source, raw, source->rows - 1, 1, row);
    }
    free(row);
}

static void touch_sources(struct tensor_file *file, const uint8_t *data) {
    static const struct quantization_config forms[] = {
        {QUANTIZATION_GPTQ, "", 4, 32, .is_in_order = true},
        {QUANTIZATION_GPTQ, "", 8, 0},
        {QUANTIZATION_AWQ, "", 4, 64},
        {QUANTIZATION_COMPRESSED, "", 4, 32},
        {QUANTIZATION_COMPRESSED, "", 8, 0},
        {QUANTIZATION_FP8, "", 8, .block_rows = 2, .block_cols = 128},
        {QUANTIZATION_MXFP4, "", 4},
    };
    static const struct tensor_place places[] = {{TENSOR_Q, 0, 0},
                                                 {TENSOR_EXPERT_DOWN, 0, TENSOR_ALL_EXPERTS}};
    static struct model model;
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        struct tensor_source source;
        model.config.naming = TENSOR_NAMING_HF;
        model.config.quantization = forms[i];
        model.file = file;
        for (size_t p = 0; p < 2; p++)
            if (tensor_source_find(&model, places[p], &source) && source.wrong == NULL &&
                source.dtype != DTYPE_NONE && source.assemble != NULL)
                assemble(&source, data);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    struct tensor_file *file;
    struct error err = {0};
    if (bytes >= 4 && memcmp(data, "GGUF", 4) == 0)
        return 0;
    if (tensor_file_open_memory(data, bytes, "fuzz", &file, &err) != 0) {
        check_refusal(&err, "fuzz");
        return 0;
    }
    uint64_t header_bytes;
    memcpy(&header_bytes, data, sizeof(header_bytes));
    check_cover(file, bytes - sizeof(header_bytes) - (size_t)header_bytes);
    touch_tensors(file);
    touch_sources(file, data);
    tensor_file_close(file);
    return 0;
}
