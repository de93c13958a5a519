/* What every backend asks of the parts of a matrix before it takes them. */
#ifndef QUIRE_KERNELS_MATRIX_PART_H
#define QUIRE_KERNELS_MATRIX_PART_H

#include "kernels/backend.h"

/* A known element type, no empty side, rows of whole blocks; else ERROR_MODEL. */
int matrix_part_check(const struct matrix_part *part, int32_t cols, struct error *err);
/* Whether any part has a bias; those without one then count as zeros. */
bool matrix_part_any_biased(const struct matrix_part *parts, int num_parts);

#endif
