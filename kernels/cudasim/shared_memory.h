/* The shared memory of the block that runs. */
#ifndef CUDASIM_SHARED_MEMORY_H
#define CUDASIM_SHARED_MEMORY_H

#include "cudasim/thread.h"

#include <stddef.h>

namespace cudasim {

const size_t MAX_SHARED_BYTES = 48 << 10; /* dynamic, unless cudaFuncSetAttribute raised it */
const size_t MAX_SHARED_BYTES_OPTIN = 99 << 10;

/* For the blocks of a grid: `bytes` of dynamic memory, 16-byte aligned, that end at an unmapped
 * page and beside poisoned bytes, and the static memory of the kernel's module. */
void *begin_shared_memory(const void *kernel, size_t bytes);
/* 0xff in every byte, before each block. */
void poison_shared_memory();

/* Ends the process unless `address` is a multiple of `bytes` and so many there are shared memory.
 */
void check_shared_address(const site &where, const void *address, size_t bytes);

} // namespace cudasim

#endif
