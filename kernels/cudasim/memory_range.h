#ifndef CUDASIM_MEMORY_RANGE_H
#define CUDASIM_MEMORY_RANGE_H

#include <stddef.h>

namespace cudasim {

struct memory_range {
    char *start;
    size_t bytes;
};

} // namespace cudasim

#endif
