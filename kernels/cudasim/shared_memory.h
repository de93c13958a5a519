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
    /* Dynamic memory as it was at the last fence_async_proxy; empty: none yet. */
    std::vector<char> async_view;
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

/* Addresses as wgmma's descriptors have them: from `own->arena` on. */
uint32_t shared_address(const block_shared &own, const void *address);
/* The dynamic memory at one, or what the async proxy sees there; ends the process where there is
 * none. */
const char *shared_at(const site &where, const block_shared &own, uint32_t address, size_t bytes,
                      bool by_async_proxy);
/* All that was stored is seen by the async proxy: also what other threads have stored. */
void open_to_async_proxy(block_shared *own);

} // namespace cudasim

#endif
