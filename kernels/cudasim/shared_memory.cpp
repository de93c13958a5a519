#include "shared_memory.h"

#include "fatal.h"
#include "sanitizer.h"
#include "static_shared.h"

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

namespace cudasim {

static char *arena; /* MAX_SHARED_BYTES_OPTIN up to a guard page */
static size_t arena_bytes;
static char *dynamic_start;
static size_t dynamic_bytes;
static const std::vector<memory_range> *statics;

static void map_arena() {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    arena_bytes = (MAX_SHARED_BYTES_OPTIN + page - 1) / page * page;
    void *memory = mmap(nullptr, arena_bytes + page, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        fatal("no memory for shared memory");
    arena = static_cast<char *>(memory);
    mprotect(arena + arena_bytes, page, PROT_NONE);
}

void *begin_shared_memory(const void *kernel, size_t bytes) {
    if (arena == nullptr)
        map_arena();
    statics = &static_shared_of(kernel);
    dynamic_bytes = bytes;
    dynamic_start = arena + arena_bytes - (bytes + 15) / 16 * 16;
    ASAN_POISON_MEMORY_REGION(arena, arena_bytes);
    ASAN_UNPOISON_MEMORY_REGION(dynamic_start, bytes);
    return dynamic_start;
}

/* A redzone that lies within is written too: AddressSanitizer must not look, as in memset. */
__attribute__((no_sanitize_address)) static void poison_static(const memory_range &range) {
    if (!CUDASIM_ASAN) {
        memset(range.start, 0xff, range.bytes);
        return;
    }
    volatile char *bytes = range.start;
    for (size_t i = 0; i < range.bytes; i++)
        bytes[i] = (char)0xff;
}

void poison_shared_memory() {
    memset(dynamic_start, 0xff, dynamic_bytes);
    for (const memory_range &range : *statics)
        poison_static(range);
}

static bool range_holds(const char *start, size_t range_bytes, const void *address, size_t bytes) {
    uintptr_t from = reinterpret_cast<uintptr_t>(start);
    uintptr_t at = reinterpret_cast<uintptr_t>(address);
    return at >= from && range_bytes >= bytes && at - from <= range_bytes - bytes;
}

static bool is_shared(const void *address, size_t bytes) {
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

} // namespace cudasim
