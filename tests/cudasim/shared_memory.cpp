#include "shared_memory.h"

#include "fatal.h"

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

namespace cudasim {

static char *arena; /* MAX_SHARED_BYTES_OPTIN up to a guard page */
static size_t arena_bytes;
static char *dynamic_start;
static size_t dynamic_bytes;

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

void *begin_dynamic_shared(size_t bytes) {
    if (arena == nullptr)
        map_arena();
    dynamic_bytes = bytes;
    dynamic_start = arena + arena_bytes - (bytes + 15) / 16 * 16;
    return dynamic_start;
}

void poison_dynamic_shared() {
    memset(dynamic_start, 0xff, dynamic_bytes);
}

void check_shared_address(const char *operation, const void *address) {
    uintptr_t at = reinterpret_cast<uintptr_t>(address);
    if (at % 16 != 0)
        fatal("%s: shared address %p is not 16-byte aligned", operation, address);
}

} // namespace cudasim
