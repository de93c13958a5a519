#include "fiber.h"

#include "fatal.h"
#include "sanitizer.h"

#include <sys/mman.h>
#include <unistd.h>

namespace cudasim {

/* AddressSanitizer's redzones make frames several times larger. */
static const size_t STACK_BYTES = CUDASIM_ASAN ? 256 << 10 : 64 << 10;
/* Stacks begin at different places of their pages, or the same few lines of the first-level cache
 * would hold the frames of all. */
static const size_t COLOR_BYTES = 128;
static const int NUM_COLORS = 32;

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
        size_t color_bytes = (size_t)(i % NUM_COLORS) * COLOR_BYTES;
        fibers[i] = {nullptr, stack, stack, STACK_BYTES - color_bytes, nullptr};
    }
}

void fiber_prepare(fiber *f, void (*entry)()) {
    f->fake_stack = nullptr;
    fiber_machine_prepare(f, entry);
}

void fiber_switch(fiber *from, fiber *to, bool from_ends) {
    left = from;
    __sanitizer_start_switch_fiber(from_ends ? nullptr : &from->fake_stack, to->stack_bottom,
                                   to->stack_bytes);
    fiber_machine_switch(from, to);
    __sanitizer_finish_switch_fiber(from->fake_stack, &left->stack_bottom, &left->stack_bytes);
}

void fiber_entered() {
    __sanitizer_finish_switch_fiber(nullptr, &left->stack_bottom, &left->stack_bytes);
}

} // namespace cudasim
