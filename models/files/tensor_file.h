/* The files of a model: named tensors and metadata, in any supported format.
 *
 * A path is a GGUF file (gguf.c), the first of several it is split into, or a folder with
 * safetensors (safetensors.c), whose metadata is empty. Files are read, never mapped: truncating
 * one while it is open makes a call fail and does not end the process. Names and metadata are
 * copies in our own memory.
 *
 * Opened once at start and immutable afterwards, so any thread may use it. tensor_file_open has
 * checked every tensor's location against the size of its file. */
#ifndef QUIRE_MODELS_FILES_TENSOR_FILE_H
#define QUIRE_MODELS_FILES_TENSOR_FILE_H

#include "config/base/error.h"
#include "config/base/text.h"
#include "kernels/dtype.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TENSOR_MAX_DIMS 4

/* A type of a format that no kernel supports. */
struct unsupported_type {
    const char *name; /* the format's name for it */
    size_t bytes;     /* of an element */
};

struct tensor_info {
    struct text name;
    enum dtype dtype;                           /* DTYPE_NONE if the type is unsupported */
    const struct unsupported_type *unsupported; /* else NULL; static */
    int num_dims;                               /* 0: a single number */
    int64_t shape[TENSOR_MAX_DIMS];             /* outermost first: [rows, cols] of a matrix */
    uint64_t offset;                            /* of its first byte, in its file */
    int part;                                   /* which of the files the model is split into */
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
    struct text raw; /* its type and value, as bytes of the file */
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
struct input_file;

/* Opens and parses path; the files stay open. Fails with ERROR_MODEL (the reason names the file and
 * the field), ERROR_IO or ERROR_MEMORY. */
int tensor_file_open(const char *path, struct tensor_file **out, struct error *err);
/* The same for one safetensors file, which describes no model: an adapter's. */
int tensor_file_open_safetensors(const char *path, struct tensor_file **out, struct error *err);
/* Parses one whole file in memory that outlives the tensor_file; for tests and fuzzing. */
int tensor_file_open_memory(const void *data, size_t bytes, const char *name,
                            struct tensor_file **out, struct error *err);
/* Accepts NULL. */
void tensor_file_close(struct tensor_file *file);

const char *tensor_file_path(const struct tensor_file *file);
const char *tensor_file_format(const struct tensor_file *file); /* "GGUF v3, 3 files" */
size_t tensor_file_bytes(const struct tensor_file *file);       /* of all its files */

/* Returns one of the files; part < tensor_file_num_parts. NULL for one in memory. */
int tensor_file_num_parts(const struct tensor_file *file);
const struct input_file *tensor_file_part(const struct tensor_file *file, int part);

size_t tensor_file_num_tensors(const struct tensor_file *file);
const struct tensor_info *tensor_file_tensor(const struct tensor_file *file, size_t index);
/* Returns NULL if absent; O(log n). */
const struct tensor_info *tensor_file_find(const struct tensor_file *file, const char *name);

/* Copies the bytes [offset, offset + bytes) of the tensor, which lie inside it (CHECKed), to dst.
 * Safe from any thread. ERROR_MODEL when the file has become shorter since it was opened, ERROR_IO
 * when the system cannot read it. */
int tensor_read(const struct tensor_file *file, const struct tensor_info *tensor, size_t offset,
                size_t bytes, void *dst, struct error *err);

/* From now on reads the files now at the paths, if copies have replaced those that were opened.
 * ERROR_MODEL if the files no longer begin with the parsed bytes; the tensors' bytes are not
 * compared. Called while nobody reads it. */
int tensor_file_refresh(const struct tensor_file *file, struct error *err);

size_t tensor_file_num_metadata(const struct tensor_file *file);
const struct metadata *tensor_file_metadata(const struct tensor_file *file, size_t index);
const struct metadata *tensor_file_find_metadata(const struct tensor_file *file, const char *key);

/* Returns element i of an array (i < count, CHECKed); numbers convert, strings live as long as the
 * file is open. */
double metadata_array_number(const struct metadata *array, uint64_t i);
struct text metadata_array_string(const struct metadata *array, uint64_t i);

#endif
