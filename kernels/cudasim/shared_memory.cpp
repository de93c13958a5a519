#include "shared_memory.h"

#include "fatal.h"
#include "sanitizer.h"
#include "static_shared.h"

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

namespace cudasim {

static size_t dynamic_bytes;
static const std::vector<memory_range> *statics;

static size_t arena_bytes() {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (MAX_SHARED_BYTES_OPTIN + page - 1) / page * page;
}

static char *map_arena() {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *memory = mmap(nullptr, arena_bytes() + page, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        fatal("no memory for shared memory");
    mprotect(static_cast<char *>(memory) + arena_bytes(), page, PROT_NONE);
    return static_cast<char *>(memory);
}

void begin_shared_memory(const void *kernel, size_t bytes) {
    statics = &static_shared_of(kernel);
    dynamic_bytes = bytes;
}

/* A redzone that lies within is touched too: AddressSanitizer must not look, as in memcpy. `from`
 * NULL: 0xff. */
__attribute__((no_sanitize_address)) static void copy_static(char *to, const char *from,
                                                             size_t bytes) {
    if (!CUDASIM_ASAN) {
        from == nullptr ? memset(to, 0xff, bytes) : memcpy(to, from, bytes);
        return;
    }
    volatile char *out = to;
    for (size_t i = 0; i < bytes; i++)
        out[i] = from == nullptr ? (char)0xff : from[i];
}

static char *dynamic_start_of(const block_shared &own) {
    return own.arena + arena_bytes() - (dynamic_bytes + 15) / 16 * 16;
}

void *begin_block_memory(block_shared *own) {
    if (own->arena == nullptr)
        own->arena = map_arena();
    own->async_view.clear();
    char *dynamic_start = dynamic_start_of(*own);
    ASAN_POISON_MEMORY_REGION(own->arena, arena_bytes());
    ASAN_UNPOISON_MEMORY_REGION(dynamic_start, dynamic_bytes);
    memset(dynamic_start, 0xff, dynamic_bytes);
    for (const memory_range &range : *statics)
        copy_static(range.start, nullptr, range.bytes);
    return dynamic_start;
}

void save_static_memory(block_shared *own) {
    size_t bytes = 0;
    for (const memory_range &range : *statics)
        bytes += range.bytes;
    own->statics.resize(bytes);
    char *to = own->statics.data();
    for (const memory_range &range : *statics) {
        copy_static(to, range.start, range.bytes);
        to += range.bytes;
    }
}

void restore_static_memory(const block_shared *own) {
    const char *from = own->statics.data();
    for (const memory_range &range : *statics) {
        copy_static(range.start, from, range.bytes);
        from += range.bytes;
    }
}

static bool range_holds(const char *start, size_t range_bytes, const void *address, size_t bytes) {
    uintptr_t from = reinterpret_cast<uintptr_t>(start);
    uintptr_t at = reinterpret_cast<uintptr_t>(address);
    return at >= from && range_bytes >= bytes && at - from <= range_bytes - bytes;
}

static bool is_shared(const void *address, size_t bytes) {
    const char *dynamic_start = static_cast<const char *>(current_grid.dynamic_shared);
    if (range_holds(dynamic_start, dynamic_bytes, address, bytes))
        return true;
    for (const memory_range &range : *statics)
        if (range_holds(range.start, range.bytes, address, bytes))
            return true;
    return false;
}

void check_shared_address(const site &where, const void *address, size_t bytes) {
    if (reinterpret_cast<uintptr_t>(address) % bytes != 0)
        fatal("%s (%s:%d): shared address %p is not %zu-byte aligned", where.operation, where.file,
              where.line, address, bytes);
    if (!is_shared(address, bytes))
        fatal("%s (%s:%d): no %zu bytes of shared memory at %p", where.operation, where.file,
              where.line, bytes, address);
}

uint32_t shared_address(const block_shared &own, const void *address) {
    return (uint32_t)(static_cast<const char *>(address) - own.arena);
}

const char *shared_at(const site &where, const block_shared &own, uint32_t address, size_t bytes,
                      bool by_async_proxy) {
    const char *start = dynamic_start_of(own), *at = own.arena + address;
    if (!range_holds(start, dynamic_bytes, at, bytes))
        fatal("%s (%s:%d): no %zu bytes of dynamic shared memory at 0x%x", where.operation,
              where.file, where.line, bytes, address);
    if (!by_async_proxy)
        return at;
    if (own.async_view.empty())
        fatal("%s (%s:%d): shared memory without a fence_async_proxy", where.operation, where.file,
              where.line);
    return own.async_view.data() + (at - start);
}

void open_to_async_proxy(block_shared *own) {
    const char *start = dynamic_start_of(*own);
    own->async_view.assign(start, start + dynamic_bytes);
}

} // namespace cudasim
