#include "kernels/matrix_part.h"

#include "config/base/check.h"
#include "config/base/checked.h"

int matrix_part_check(const struct matrix_part *part, int32_t cols, struct error *err) {
    if ((unsigned)part->dtype >= DTYPE_COUNT)
        return error_set(err, ERROR_MODEL, "matrix of unknown element type %d", (int)part->dtype);
    if (part->rows <= 0 || cols <= 0)
        return error_set(err, ERROR_MODEL, "%s matrix of %d x %d: must not be empty",
                         dtype_name(part->dtype), part->rows, cols);
    if (cols % dtype_block_elements(part->dtype) != 0)
        return error_set(err, ERROR_MODEL, "%s matrix with rows of %d: must be a multiple of %d",
                         dtype_name(part->dtype), cols, dtype_block_elements(part->dtype));
    return 0;
}

size_t matrix_part_bytes(const struct backend *b, const struct matrix_part *parts, int num_parts,
                         int32_t cols, enum matrix_use use) {
    size_t bytes = 0;
    for (int i = 0; i < num_parts; i++) {
        if (matrix_part_check(&parts[i], cols, NULL) != 0)
            return 0;
        size_t part_bytes, row_bytes = dtype_row_bytes(parts[i].dtype, (size_t)cols) +
                                       (parts[i].bias != NULL ? sizeof(float) : 0);
        if (!checked_mul((size_t)parts[i].rows, row_bytes, &part_bytes) ||
            !checked_add(bytes, part_bytes, &bytes))
            return SIZE_MAX;
    }
    return bytes;
}

bool matrix_part_any_biased(const struct matrix_part *parts, int num_parts) {
    for (int i = 0; i < num_parts; i++)
        if (parts[i].bias != NULL)
            return true;
    return false;
}

const struct matrix_part *matrix_part_of_rows(const struct matrix_part *parts, int num_parts,
                                              int32_t first_row, int32_t num_rows) {
    int64_t first = first_row;
    CHECK(first_row >= 0 && num_rows > 0);
    for (int i = 0; i < num_parts; first -= parts[i++].rows)
        if (first < parts[i].rows) {
            CHECK(first + num_rows <= parts[i].rows);
            return &parts[i];
        }
    CHECK(!"rows past the end of a matrix");
}
