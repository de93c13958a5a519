#include "cudasim/matrix.h"
#include "cudasim/reads.h"

#include "block.h"
#include "fatal.h"
#include "shared_memory.h"

#include <string.h>

namespace cudasim {

static void complete(const pending_copy &copy) {
    if (copy.global == nullptr)
        memset(copy.shared, 0, copy.bytes);
    else
        memcpy(copy.shared, copy.global, copy.bytes);
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

static void copy_async(const site &where, void *shared, const void *global, bool valid,
                       size_t bytes) {
    check_shared_address(where, shared, bytes);
    if (reinterpret_cast<uintptr_t>(global) % bytes != 0)
        fatal("%s (%s:%d): global address %p is not %zu-byte aligned", where.operation, where.file,
              where.line, global, bytes);
    if (valid) {
        /* A bad address is reported here, where it was given, not at the wait. */
        unsigned char probe[16];
        memcpy(probe, global, bytes);
        __asm__ volatile("" : : "r"(probe) : "memory");
        if (reads_are_watched)
            watch_read(global, bytes, false);
    }
    memset(shared, 0xff, bytes);
    pending_copies &pending = running_thread()->copies;
    pending.copies.push_back({shared, valid ? global : nullptr, bytes, pending.next_group});
}

} // namespace cudasim

void copy_async_16(void *shared, const void *global, bool valid, const char *file, int line) {
    cudasim::copy_async({"copy_async_16", file, line}, shared, global, valid, 16);
}

void copy_async_4(void *shared, const void *global, bool valid, const char *file, int line) {
    cudasim::copy_async({"copy_async_4", file, line}, shared, global, valid, 4);
}

void copy_async_commit() {
    cudasim::running_thread()->copies.next_group++;
}
