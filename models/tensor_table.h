/* Private to models/: what a parser of one file format fills in, and tensor_file.c looks up.
 * Names and values point into the file's image; only the arrays here are owned. */
#ifndef QUIRE_MODELS_TENSOR_TABLE_H
#define QUIRE_MODELS_TENSOR_TABLE_H

#include "models/tensor_file.h"

struct tensor_table {
    char format[16]; /* "GGUF v3" */
    size_t num_tensors;
    struct tensor_info *tensors; /* [num_tensors], in the file's order */
    size_t num_metadata;
    struct metadata *metadata; /* [num_metadata], in the file's order; string_offsets are owned */
};

/* The bytes of a file and what to call it in messages. */
struct file_image {
    const uint8_t *data;
    size_t bytes;
    const char *name;
};

/* Accepts a zeroed table and one a parser gave up on half way. */
void tensor_table_finish(struct tensor_table *table);

/* Byte order, for sorting names; < 0, 0, > 0. */
int text_compare(struct text a, struct text b);

/* For "%.*s" in a message: long names are cut so that the reason still fits. */
int text_print_length(struct text text);

#endif
