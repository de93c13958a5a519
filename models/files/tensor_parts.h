/* Private to models/: the contents of a struct tensor_file, which the formats put together from one
 * or several files. */
#ifndef QUIRE_MODELS_FILES_TENSOR_PARTS_H
#define QUIRE_MODELS_FILES_TENSOR_PARTS_H

#include "models/files/tensor_table.h"

/* Each stays open. */
#define TENSOR_MAX_PARTS 512

struct tensor_part {
    struct input_file input; /* zeroed: the image is in memory of the caller */
    struct file_image image;
    struct tensor_table table;
};

struct tensor_file {
    char *path;      /* as it was given: a file, the first of several, or a folder */
    char format[48]; /* "GGUF v3", "safetensors, 4 files" */
    int num_parts;
    struct tensor_part **parts;
    size_t num_tensors;
    struct tensor_info *tensors; /* [num_tensors], of all parts, one part after the other */
    const struct tensor_info **tensors_by_name;
    const struct metadata **metadata_by_key; /* of the first part, which speaks for all */
};

/* Opens one more file and has it parsed. The parts so far stay as they are on failure. */
int tensor_parts_open(struct tensor_file *file, const char *path, tensor_parser parse,
                      struct error *err);
/* Adds a part in memory that outlives the tensor_file. */
int tensor_parts_open_memory(struct tensor_file *file, const void *data, size_t bytes,
                             const char *name, tensor_parser parse, struct error *err);

/* Joins the tables once all parts are there, sorts the names and refuses those that occur twice. */
int tensor_parts_join(struct tensor_file *file, struct error *err);

#endif
