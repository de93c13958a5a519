/* Finds where the __shared__ variables of kernels lie. */
#ifndef CUDASIM_STATIC_SHARED_H
#define CUDASIM_STATIC_SHARED_H

#include "memory_range.h"

#include <vector>

namespace cudasim {

/* All those of the program or shared object that `kernel` is in; none when its symbol table was
 * stripped. */
const std::vector<memory_range> &static_shared_of(const void *kernel);

} // namespace cudasim

#endif
