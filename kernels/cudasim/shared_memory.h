/* The shared memory of the block that runs. */
#ifndef CUDASIM_SHARED_MEMORY_H
#define CUDASIM_SHARED_MEMORY_H

#include "cudasim/thread.h"

#include <stddef.h>

#include <vector>

namespace cudasim {

const size_t MAX_SHARED_BYTES = 48 << 10; /* dynamic, unless cudaFuncSetAttribute raised it */
const size_t MAX_SHARED_BYTES_OPTIN = 99 << 10;

/* Of one of the blocks in flight. */
struct block_shared {
    char *arena; /* NULL, or MAX_SHARED_BYTES_OPTIN up to a guard page */
    std::vector<char> statics;
};

/* For the blocks of a grid: `bytes` of dynamic memory each, and the static memory of the kernel's
 * module. */
void begin_shared_memory(const void *kernel, size_t bytes);
/* For a block that begins: 0xff in every byte. Returns its dynamic memory, 16-byte aligned, which
 * ends at an unmapped page, next to poisoned bytes. */
void *begin_block_memory(block_shared *own);
/* Static memory has one place for all blocks: when another block continues, it is copied out and
 * back. */
void save_static_memory(block_shared *own);
void restore_static_memory(const block_shared *own);

/* Ends the process unless `address` is a multiple of `bytes` and that many bytes from it on are
 * shared memory.
 */
void check_shared_address(const site &where, const void *address, size_t bytes);

} // namespace cudasim

#endif
