/* The shared memory of the block that runs. */
#ifndef CUDASIM_SHARED_MEMORY_H
#define CUDASIM_SHARED_MEMORY_H

#include <stddef.h>

namespace cudasim {

const size_t MAX_SHARED_BYTES = 48 << 10; /* dynamic, unless cudaFuncSetAttribute raised it */
const size_t MAX_SHARED_BYTES_OPTIN = 99 << 10;

/* Dynamic memory for the blocks of a grid, 16-byte aligned, ends at an unmapped page. */
void *begin_dynamic_shared(size_t bytes);
/* 0xff in every byte, before each block. */
void poison_dynamic_shared();

/* Ends the process unless 16 bytes may be accessed at `address`, aligned. */
void check_shared_address(const char *operation, const void *address);

} // namespace cudasim

#endif
