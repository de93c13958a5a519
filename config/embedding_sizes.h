/* The sizes to which a model's embeddings may be truncated, if it was trained for that (Matryoshka
 * representation learning, arXiv 2205.13147): the first n numbers of an embedding are an embedding
 * too. */
#ifndef QUIRE_CONFIG_EMBEDDING_SIZES_H
#define QUIRE_CONFIG_EMBEDDING_SIZES_H

#include <stdbool.h>
#include <stdint.h>

#define EMBEDDING_MAX_SIZES 32

/* Zeroed: only the full size. */
struct embedding_sizes {
    bool any; /* any size from 1 on; otherwise the listed ones */
    int num_sizes;
    int32_t sizes[EMBEDDING_MAX_SIZES];
};

/* Returns whether embeddings of `whole` numbers may be cut to that size, or have it already. */
static inline bool embedding_sizes_allow(const struct embedding_sizes *sizes, int32_t whole,
                                         int64_t count) {
    if (count == whole || (sizes->any && count >= 1 && count <= whole))
        return true;
    for (int i = 0; i < sizes->num_sizes; i++)
        if (sizes->sizes[i] == count)
            return true;
    return false;
}

#endif
