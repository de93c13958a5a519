/* Private to models/: the parser of GGUF v2 and v3 (little-endian files, which are alike).
 *
 *   "GGUF" | u32 version | u64 num_tensors | u64 num_metadata
 *   num_metadata x { string key | u32 type | value }
 *   num_tensors  x { string name | u32 num_dims | u64 dims[], innermost first | u32 type
 *                    | u64 offset }
 *   padding to general.alignment, then the tensors' data; `offset` counts from there
 *
 * A string is a u64 length and that many bytes; an array is u32 element type, u64 count, elements.
 * (Source: GGUF specification, ggml/docs/gguf.md.)
 *
 * A model may be split into several files, as llama.cpp's gguf-split does: they are named
 * NAME-00001-of-00003.gguf and so on, and lie next to each other. Each is a separate GGUF file with
 * the keys split.no (from 0), split.count and split.tensors.count (of all parts together); the
 * first holds the model's metadata. A file with a count of 0 (as in merged parts) or 1 is complete.
 * (Source: llama.cpp, tools/gguf-split.)
 *
 * A file is not trusted: for any contents, the result is a table whose pointers all stay inside the
 * image, or ERROR_MODEL with one line that names the field. */
#ifndef QUIRE_MODELS_FILES_GGUF_H
#define QUIRE_MODELS_FILES_GGUF_H

#include "models/files/tensor_parts.h"

#include <stdbool.h>

/* Reads the first bytes and returns whether they are the magic. */
bool gguf_matches(struct file_image *image);

/* Returns the version of an image that gguf_parse has accepted. */
int gguf_version(const struct file_image *image);

/* Returns whether files can have an element type, and then the format's number of it. */
bool gguf_has_type(enum dtype dtype);
uint32_t gguf_type_number(enum dtype dtype);

/* On success the table points into the image and is released with tensor_table_finish. */
int gguf_parse(struct file_image *image, struct tensor_table *out, struct error *err);

/* Opens the parts that part 0 of file (which is open and parsed) names, checks that they belong
 * together, and joins them. */
int gguf_open_rest(struct tensor_file *file, struct error *err);

#endif
