/* Packed weights outside of a backend's own memory: the bytes into which a backend has repacked a
 * matrix, for a cache that keeps them in a file and maps them at a later start
 * (backend_ops.packing; NULL if a device's weights are not in memory of this process, or not
 * repacked). Called by the backend's thread. */
#ifndef QUIRE_KERNELS_PACKING_H
#define QUIRE_KERNELS_PACKING_H

#include "config/base/error.h"
#include "kernels/dtype.h"

#include <stddef.h>
#include <stdint.h>

struct backend;
struct matrix;
struct matrix_part;

#define PACKED_ALIGNMENT ((size_t)64)

struct packed_bytes {
    void *data; /* aligned to PACKED_ALIGNMENT */
    size_t bytes;
};

struct packing_ops {
    /* Writes one character for each type: the layout into which a matrix of it is packed. In one
     * build, equal matrices have equal bytes on two backends whose layouts are equal. */
    void (*layouts)(const struct backend *b, char out[DTYPE_COUNT + 1]);
    /* Returns the bytes of a matrix whose rows are all filled, without its biases: they belong to
     * it and never change. */
    struct packed_bytes (*bytes_of)(const struct matrix *matrix);
    /* Creates a matrix of `linear` or of grouped ops, like matrix_create, from such bytes of an
     * equal one. They are only read, and must outlive the matrix, which does not own them and is
     * not filled. The parts' data are ignored. ERROR_MODEL when the matrix has another size. */
    int (*matrix_map)(struct backend *b, const struct matrix_part *parts, int num_parts,
                      int32_t cols, struct packed_bytes packed, struct matrix **out,
                      struct error *err);
};

#endif
