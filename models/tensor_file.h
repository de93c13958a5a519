/* A model file mapped read-only: named tensors and metadata, whatever the format.
 *
 * Opened once at start and immutable afterwards, so any thread may read it. Every tensor's bounds
 * have been checked against the file's size when tensor_file_open returns: touching `data` of any
 * tensor is safe as long as nobody truncates the file. Formats are told apart by their magic;
 * GGUF (gguf.c) is the first, safetensors folders join beside it. */
#ifndef QUIRE_MODELS_TENSOR_FILE_H
#define QUIRE_MODELS_TENSOR_FILE_H

#include "config/error.h"
#include "config/text.h"
#include "kernels/dtype.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TENSOR_MAX_DIMS 4

struct tensor_info {
    struct text name;
    enum dtype dtype;
    int num_dims;
    int64_t shape[TENSOR_MAX_DIMS]; /* outermost first: [rows, cols] of a matrix */
    const void *data;
    uint64_t offset; /* of its first byte, in its file */
    int part;        /* which of the files the model is split into */
    size_t bytes;
};

enum metadata_type {
    METADATA_UINT, /* any unsigned integer or bool */
    METADATA_INT,  /* any signed integer */
    METADATA_FLOAT,
    METADATA_STRING,
    METADATA_ARRAY,
};

/* One metadata value; an array's elements are read through metadata_array_* below. */
struct metadata {
    struct text key;
    enum metadata_type type;
    union {
        uint64_t as_uint;
        int64_t as_int;
        double as_float;
        struct text as_string;
        struct {
            enum metadata_type element_type; /* never ARRAY */
            uint64_t count;
            const void *data;               /* raw, unaligned */
            uint8_t element_bytes;          /* of a number; 0 for strings */
            const uint64_t *string_offsets; /* [count] byte offsets from data, for strings */
        } as_array;
    };
};

struct tensor_file;

/* Maps and parses path. Fails with ERROR_MODEL (the reason names the file and the field) or
 * ERROR_IO. */
int tensor_file_open(const char *path, struct tensor_file **out, struct error *err);
/* Parses an image in memory that outlives the tensor_file; for tests and fuzzing. */
int tensor_file_open_memory(const void *data, size_t bytes, const char *name,
                            struct tensor_file **out, struct error *err);
/* Accepts NULL. */
void tensor_file_close(struct tensor_file *file);

const char *tensor_file_path(const struct tensor_file *file);
const char *tensor_file_format(const struct tensor_file *file); /* "GGUF v3" */
size_t tensor_file_bytes(const struct tensor_file *file);

size_t tensor_file_num_tensors(const struct tensor_file *file);
const struct tensor_info *tensor_file_tensor(const struct tensor_file *file, size_t index);
/* NULL if absent; O(1) or O(log n). */
const struct tensor_info *tensor_file_find(const struct tensor_file *file, const char *name);

/* Copies the bytes [offset, offset + bytes) of the tensor, which lie inside it (CHECKed), to dst.
 * Safe from any thread. ERROR_MODEL when the file has become shorter since it was opened, ERROR_IO
 * when the system cannot read it. */
int tensor_read(const struct tensor_file *file, const struct tensor_info *tensor, size_t offset,
                size_t bytes, void *dst, struct error *err);

/* Gives the tensor's resident pages back to the system, once a backend holds its own copy. The data
 * stays readable (it is read from the file again). */
void tensor_file_release(const struct tensor_file *file, const struct tensor_info *tensor);

size_t tensor_file_num_metadata(const struct tensor_file *file);
const struct metadata *tensor_file_metadata(const struct tensor_file *file, size_t index);
const struct metadata *tensor_file_find_metadata(const struct tensor_file *file, const char *key);

/* Element i of an array (i < count, CHECKed); numbers convert, strings point into the mapping. */
double metadata_array_number(const struct metadata *array, uint64_t i);
struct text metadata_array_string(const struct metadata *array, uint64_t i);

#endif
