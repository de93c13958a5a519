/* Checks and reads the parts of a matrix, for every backend. */
#ifndef QUIRE_KERNELS_MATRIX_PART_H
#define QUIRE_KERNELS_MATRIX_PART_H

#include "kernels/backend.h"

/* Checks for a known element type, no empty side and rows of whole blocks; otherwise
 * ERROR_MODEL. */
int matrix_part_check(const struct matrix_part *part, int32_t cols, struct error *err);
/* Returns the bytes of parts that are held in the file's types, with float biases: the op
 * matrix_bytes of the CPU. */
size_t matrix_part_bytes(const struct backend *b, const struct matrix_part *parts, int num_parts,
                         int32_t cols, enum matrix_use use);
/* Returns whether any part has a bias; those without one then count as zeros. */
bool matrix_part_any_biased(const struct matrix_part *parts, int num_parts);
/* Returns the part that rows first_row..first_row+num_rows-1 of the stacked parts lie in; CHECKs
 * that it is one. */
const struct matrix_part *matrix_part_of_rows(const struct matrix_part *parts, int num_parts,
                                              int32_t first_row, int32_t num_rows);

#endif
