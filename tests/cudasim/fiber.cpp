#include "fiber.h"

#include "fatal.h"

#include <sys/mman.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#define WITH_ASAN 1
#elif defined(__has_feature)
#define WITH_ASAN __has_feature(address_sanitizer)
#else
#define WITH_ASAN 0
#endif

#if WITH_ASAN
#include <sanitizer/common_interface_defs.h>
static const size_t STACK_BYTES = 256 << 10; /* redzones make frames several times larger */
static void announce_start(void **save, const void *bottom, size_t bytes) {
    __sanitizer_start_switch_fiber(save, bottom, bytes);
}
static void announce_finish(void *saved, const void **bottom, size_t *bytes) {
    __sanitizer_finish_switch_fiber(saved, bottom, bytes);
}
#else
static const size_t STACK_BYTES = 64 << 10;
static void announce_start(void **, const void *, size_t) {
}
static void announce_finish(void *, const void **, size_t *) {
}
#endif

namespace cudasim {

/* The fiber that is being left, for the one that is entered: a stack's bounds are not known to us
 * when it is the OS thread's. */
static fiber *left;

void fiber_allocate_stacks(fiber *fibers, int count) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t stride = STACK_BYTES + page;
    void *memory = mmap(nullptr, stride * (size_t)count, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        fatal("no address space for %d stacks", count);
    for (int i = 0; i < count; i++) {
        char *stack = static_cast<char *>(memory) + stride * (size_t)i + page;
        if (mprotect(stack, STACK_BYTES, PROT_READ | PROT_WRITE) != 0)
            fatal("no memory for %d stacks", count);
        fibers[i] = {nullptr, stack, stack, STACK_BYTES, nullptr};
    }
}

void fiber_prepare(fiber *f, void (*entry)()) {
    f->fake_stack = nullptr;
    fiber_machine_prepare(f, entry);
}

void fiber_switch(fiber *from, fiber *to, bool from_ends) {
    left = from;
    announce_start(from_ends ? nullptr : &from->fake_stack, to->stack_bottom, to->stack_bytes);
    fiber_machine_switch(from, to);
    announce_finish(from->fake_stack, &left->stack_bottom, &left->stack_bytes);
}

void fiber_entered() {
    announce_finish(nullptr, &left->stack_bottom, &left->stack_bytes);
}

} // namespace cudasim
