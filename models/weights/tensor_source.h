/* Private to models/: where the rows of a matrix are in a model's files. The same matrix is
 * stored in many ways: as one tensor; for all experts in one tensor [experts, rows, cols]; with
 * inputs and outputs exchanged; in a quantised checkpoint as codes, scales and zero points in
 * tensors of their own. A source makes rows of one element type out of any of them.
 *
 * A way to store a matrix is added by a function that recognises it (the table in tensor_source.c)
 * and one that assembles rows. Pure: uses the headers of the files only; the loader reads. */
#ifndef QUIRE_MODELS_WEIGHTS_TENSOR_SOURCE_H
#define QUIRE_MODELS_WEIGHTS_TENSOR_SOURCE_H

#include "models/config/tensor_names.h"

#define TENSOR_SOURCE_MAX_TENSORS 5

struct tensor_source {
    enum dtype dtype;    /* of the rows; DTYPE_NONE if no backend knows that of the file */
    int32_t num_experts; /* whose rows follow each other; 1 for all but TENSOR_ALL_EXPERTS */
    int32_t rows, cols;  /* of an expert; 0: the tensors' shapes are not those of a matrix */
    int num_tensors;     /* each has an equal part for each expert */
    const struct tensor_info *tensors[TENSOR_SOURCE_MAX_TENSORS]; /* the first always; NULL: none */
    /* NULL: the bytes of tensors[0] are the rows. Otherwise writes rows first_row .. first_row +
     * num_rows - 1 of an expert, whose part of tensors[i] is at raw[i] (unaligned). Returns NULL,
     * or what is wrong with the bytes: static text. */
    const char *(*assemble)(const struct tensor_source *source, const uint8_t *const raw[],
                            int32_t first_row, int32_t num_rows, void *out);
    /* Of a part of another matrix: the same for that one, whose rows are then of whole_dtype; NULL:
     * its bytes are the rows. */
    const char *(*assemble_whole)(const struct tensor_source *source, const uint8_t *const raw[],
                                  int32_t first_row, int32_t num_rows, void *out);
    enum dtype whole_dtype;
    const struct tensor_info *bias;                 /* [num_experts, rows]; NULL: none */
    const struct quantization_config *quantization; /* of the model */
    int32_t group_size; /* of a quantised source: columns that share a scale */
    const char *wrong;  /* NULL, or what is wrong with the headers of its tensors: static text */
    int wrong_tensor;   /* with which of them */
    int32_t stored_rows,
        stored_cols; /* what tensors[0] must have, if not those of an expert; else 0 */
    bool alternates; /* rows (and biases) of gate and up take turns in the file; not in a source */
};

/* Finds the source of a place; returns false when the files have nothing there. Shapes are not
 * checked against the configuration: the caller compares rows, cols and num_experts. */
bool tensor_source_find(const struct model *model, struct tensor_place place,
                        struct tensor_source *out);

/* tensor_source_find of a quantised checkpoint's matrix (quantised_source.c). */
bool tensor_source_find_quantised(const struct model *model, struct tensor_place place,
                                  struct tensor_source *out);

/* Returns the bytes of one expert's part of a tensor. */
static inline size_t tensor_source_part_bytes(const struct tensor_source *source, int tensor) {
    return source->tensors[tensor]->bytes / (size_t)source->num_experts;
}

/* Returns where the file has row `row` of an expert, and its bias: gate's rows come before up's. */
static inline int32_t tensor_source_file_row(const struct tensor_source *source, int32_t row) {
    int32_t half = source->rows / 2;
    return !source->alternates ? row : row < half ? 2 * row : 2 * (row - half) + 1;
}

#endif
