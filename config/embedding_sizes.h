/* The sizes to which a model was trained to let its embeddings be cut (Matryoshka representation
 * learning, arXiv 2205.13147): the first numbers of an embedding are one too. */
#ifndef QUIRE_CONFIG_EMBEDDING_SIZES_H
#define QUIRE_CONFIG_EMBEDDING_SIZES_H

#include <stdbool.h>
#include <stdint.h>

#define EMBEDDING_MAX_SIZES 32

/* Zeroed: the whole only. */
struct embedding_sizes {
    bool any; /* from 1 on; else those listed */
    int num_sizes;
    int32_t sizes[EMBEDDING_MAX_SIZES];
};

/* Returns whether embeddings of `whole` numbers may be cut to so many, or are as many. */
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
