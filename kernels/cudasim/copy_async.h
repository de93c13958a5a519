/* The asynchronous copies a thread has begun. */
#ifndef CUDASIM_COPY_ASYNC_H
#define CUDASIM_COPY_ASYNC_H

#include <stddef.h>
#include <vector>

namespace cudasim {

struct pending_copy {
    void *shared;
    const void *global; /* NULL: zeros */
    size_t bytes;
    unsigned group;
};
struct pending_copies {
    std::vector<pending_copy> copies; /* oldest first */
    unsigned next_group;              /* of the copies that are not committed yet */
};

} // namespace cudasim

#endif
