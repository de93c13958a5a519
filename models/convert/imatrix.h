/* Private to models/convert: an importance matrix, as llama.cpp's llama-imatrix writes it: for each
 * column of a matrix, the mean square of what it was multiplied by in a sample of texts.
 *
 * Two formats. GGUF: tensors NAME.in_sum2 with the sums of each matrix (experts one after the
 * other) and NAME.counts with how many tokens each saw. The older one (.dat), little-endian:
 *
 *   i32 num_entries
 *   num_entries x { i32 length | name | i32 num_calls | i32 num_values | f32 sums[num_values] }
 *   optional: i32 num_chunks | i32 length | name of the text
 *
 * (Source: llama.cpp, common/imatrix-loader.cpp.) Values are read when they are needed; a file is
 * not trusted. One thread. */
#ifndef QUIRE_MODELS_CONVERT_IMATRIX_H
#define QUIRE_MODELS_CONVERT_IMATRIX_H

#include "config/base/error.h"
#include "config/base/text.h"

#include <stdbool.h>
#include <stdint.h>

struct imatrix;

/* ERROR_MODEL, in one line that begins with the path, for a file that is neither of the two or is
 * broken. */
int imatrix_open(const char *path, struct imatrix **out, struct error *err);
/* Accepts NULL. */
void imatrix_close(struct imatrix *imatrix);

size_t imatrix_num_entries(const struct imatrix *imatrix);
int32_t imatrix_num_chunks(const struct imatrix *imatrix);  /* 0: unknown */
struct text imatrix_dataset(const struct imatrix *imatrix); /* empty: unknown */

/* Reads the importance of the columns of a tensor's matrices into out [num_matrices][cols]; *found
 * is false if the file does not have it. ERROR_MODEL if it has other sizes, or values that are
 * negative or not finite. */
int imatrix_read(const struct imatrix *imatrix, const char *name, int64_t num_matrices,
                 int64_t cols, float *out, bool *found, struct error *err);

#endif
