#include "cudasim/matrix.h"

#include "block.h"
#include "fatal.h"
#include "shared_memory.h"

#include <string.h>

namespace cudasim {

static void complete(const pending_copy &copy) {
    if (copy.global == nullptr)
        memset(copy.shared, 0, 16);
    else
        memcpy(copy.shared, copy.global, 16);
}

void wait_for_copies(int unfinished_groups) {
    pending_copies &pending = running_thread()->copies;
    size_t num_done = 0;
    for (const pending_copy &copy : pending.copies) {
        if (copy.group + (unsigned)unfinished_groups >= pending.next_group)
            break;
        complete(copy);
        num_done++;
    }
    pending.copies.erase(pending.copies.begin(), pending.copies.begin() + (ptrdiff_t)num_done);
}

} // namespace cudasim

void copy_async_16(void *shared, const void *global, bool valid, const char *file, int line) {
    using namespace cudasim;
    check_shared_address({"copy_async_16", file, line}, shared);
    if (reinterpret_cast<uintptr_t>(global) % 16 != 0)
        fatal("copy_async_16 (%s:%d): global address %p is not 16-byte aligned", file, line,
              global);
    if (valid) {
        /* A bad address is reported here, where it was given, not at the wait. */
        unsigned char probe[16];
        memcpy(probe, global, sizeof probe);
        __asm__ volatile("" : : "r"(probe) : "memory");
    }
    memset(shared, 0xff, 16);
    pending_copies &pending = running_thread()->copies;
    pending.copies.push_back({shared, valid ? global : nullptr, pending.next_group});
}

void copy_async_commit() {
    cudasim::running_thread()->copies.next_group++;
}
