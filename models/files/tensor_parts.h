/* Private to models/: the tensors and metadata of one file, filled in by its parser, and the
 * contents of a struct tensor_file, assembled by the formats from one or several files. */
#ifndef QUIRE_MODELS_FILES_TENSOR_PARTS_H
#define QUIRE_MODELS_FILES_TENSOR_PARTS_H

#include "models/files/file_image.h"
#include "models/files/tensor_file.h"

/* Names and values point into the file's image, or into `names`. */
struct tensor_table {
    size_t num_tensors;
    struct tensor_info *tensors; /* [num_tensors], in the file's order */
    size_t num_metadata;
    struct metadata *metadata; /* [num_metadata], in the file's order; string_offsets are owned */
    char *names;               /* of a format whose names cannot be used directly from its image */
};

/* Fills *out from an image. For any bytes, the result is a table whose pointers are all valid and
 * whose tensors all lie inside the file, or ERROR_MODEL. */
typedef int (*tensor_parser)(struct file_image *image, struct tensor_table *out, struct error *err);

/* Accepts a zeroed table and a partially filled one. */
void tensor_table_finish(struct tensor_table *table);

/* Returns NULL if absent; O(n). */
const struct metadata *tensor_table_find_metadata(const struct tensor_table *table,
                                                  const char *key);

/* Refuses a name with "FILE: WHAT: ..." unless it has 1..max_bytes bytes and no control
 * characters. */
int tensor_table_check_name(const char *file, const char *what, struct text name, size_t max_bytes,
                            struct error *err);

/* Sets tensor->bytes from its shape and type, in checked arithmetic: at most 2^63-1 bytes and
 * elements, rows of whole blocks. `file` is for messages. */
int tensor_table_size(const char *file, struct tensor_info *tensor, struct error *err);

/* Returns the tensors sorted by offset, to check neighbours; the caller frees. NULL: no memory. */
const struct tensor_info **tensor_table_by_offset(const struct tensor_table *table);

/* --- Parts --- */

/* Each stays open. */
#define TENSOR_MAX_PARTS 512

struct tensor_part {
    struct input_file input; /* zeroed: the image is in the caller's memory */
    struct file_image image;
    struct tensor_table table;
};

struct tensor_file {
    char *path;      /* as given: a file, the first of several, or a folder */
    char format[48]; /* "GGUF v3", "safetensors, 4 files" */
    int num_parts;
    struct tensor_part **parts;
    size_t num_tensors;
    struct tensor_info *tensors; /* [num_tensors], of all parts, one part after the other */
    const struct tensor_info **tensors_by_name;
    const struct metadata **metadata_by_key; /* of the first part, which applies to all */
};

/* Opens and parses one more file. On failure the parts so far are unchanged. */
int tensor_parts_open(struct tensor_file *file, const char *path, tensor_parser parse,
                      struct error *err);
/* Adds a part in memory that outlives the tensor_file. */
int tensor_parts_open_memory(struct tensor_file *file, const void *data, size_t bytes,
                             const char *name, tensor_parser parse, struct error *err);

/* Joins the tables after all parts were added, sorts the names and refuses duplicates. */
int tensor_parts_join(struct tensor_file *file, struct error *err);

#endif
