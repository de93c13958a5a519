/* Private to models/convert: a planned conversion, filled by the reader of its source
 * (gguf_source.c, folder_source.c) and by conversion.c. */
#ifndef QUIRE_MODELS_CONVERT_CONVERSION_PRIVATE_H
#define QUIRE_MODELS_CONVERT_CONVERSION_PRIVATE_H

#include "models/config/model.h"
#include "models/convert/conversion.h"
#include "models/convert/imatrix.h"
#include "models/files/gguf_writer.h"
#include "models/weights/tensor_source.h"

/* How a tensor of the new file is made. */
struct planned_tensor {
    struct converted_tensor tensor;
    const float *values;              /* of the conversion; F32; NULL: one of the following */
    const struct tensor_info *source; /* its elements, in their order; NULL: a folder's matrix */
    /* A folder's matrix or matrices: their rows are those of the place's source
     * (tensor_source.h), from first_row of each on. */
    struct tensor_place place;
    bool has_experts_apart; /* each expert's is at a place of its own */
    int32_t first_row;
    /* Of a source [experts, source_cols]: the elements that are taken of a row; 0: all. */
    int32_t source_cols, first_col, col_step;
    /* Rows of q and k whose rotated pairs become neighbours: of this many heads; 0: they stay. */
    int32_t interleaved_heads;
    bool plus_one;   /* 1 is added to each value */
    uint64_t offset; /* from the first byte after the header */
};

struct conversion {
    const char *path;
    const struct conversion_settings *settings;
    struct tensor_file *file; /* the source's; of model if that is not NULL */
    struct model *model;      /* of a folder; NULL: a GGUF file */
    struct imatrix *imatrix;  /* NULL: none */
    size_t num_tensors, capacity;
    struct planned_tensor *tensors; /* in the order of their layers, then of their names */
    float *values;                  /* owned; of planned tensors */
    const char *architecture;       /* of a folder: its name in GGUF files; static */
    int32_t num_extra_layers;       /* after the last, that the new file has too */
    bool interleaves;               /* rotated pairs are neighbours there, and not in the folder */
    struct mixture_model mixture;
    struct gguf_writer header;
    int num_fallbacks;
};

/* Appends a tensor with this name, and the shape and type of `source` if that is not NULL; NULL: no
 * memory. The reader sets the rest. */
struct planned_tensor *conversion_add(struct conversion *c, const char *name,
                                      const struct tensor_info *source, struct error *err);
/* Sorts the tensors and chooses the type of each, by the rules and the settings. ERROR_CONFIG for a
 * pattern, ERROR_MODEL for a source's type. */
int conversion_plan_types(struct conversion *c, struct error *err);

/* The readers: open the source, add its tensors, and fill `mixture`. */
int gguf_source_open(struct conversion *c, struct error *err);
int folder_source_open(struct conversion *c, struct error *err);
/* Then, when every tensor has its type: the metadata of the source. */
int gguf_source_metadata(struct conversion *c, struct error *err);
int folder_source_metadata(struct conversion *c, struct error *err);
/* Compares what the file at path, whose header and computed tensors are written, says of the model
 * with the folder. ERROR_MODEL names what the format cannot say. */
int folder_source_check(const struct conversion *c, const char *path, struct error *err);

/* source_rows.c: reads a planned tensor's rows of cols elements, in the source's type. */
struct source_rows {
    const struct conversion *c;
    const struct planned_tensor *planned;
    size_t cols, matrix_rows; /* of each of its matrices */
    int32_t matrix;           /* which one the following are of; -1: none yet */
    struct tensor_source source;
    uint8_t *raw[TENSOR_SOURCE_MAX_TENSORS]; /* its tensors, if rows are assembled of them */
    uint8_t *line;                           /* a row that elements are taken of */
};

void source_rows_init(struct source_rows *rows, const struct conversion *c,
                      const struct planned_tensor *planned, size_t cols, size_t matrix_rows);
void source_rows_finish(struct source_rows *rows);
/* Reads rows [first, first + count), counted through all matrices. */
int source_rows_read(struct source_rows *rows, size_t first, size_t count, uint8_t *dst,
                     struct error *err);

/* folder_tokenizer.c: the metadata of the folder's tokenizer, and whether that of the written model
 * gives the same tokens. */
int folder_tokenizer_metadata(struct conversion *c, struct error *err);
int folder_tokenizer_check(const struct conversion *c, const struct model *written,
                           struct error *err);

#endif
