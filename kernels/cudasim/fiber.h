/* A separate stack for each simulated thread, and the switch between them. One OS thread runs them
 * all. Switches are announced to AddressSanitizer. */
#ifndef CUDASIM_FIBER_H
#define CUDASIM_FIBER_H

#include <stddef.h>

namespace cudasim {

struct fiber {
    void *context; /* of the machine's switch: a stack pointer, or a ucontext_t */
    char *stack;   /* NULL: this is the OS thread's own stack */
    const void *stack_bottom;
    size_t stack_bytes;
    void *fake_stack; /* AddressSanitizer's */
};

/* Stacks for `count` fibers, guard pages between them. Ends the process when there is no memory. */
void fiber_allocate_stacks(fiber *fibers, int count);

/* The next switch to it calls entry(), which must not return. */
void fiber_prepare(fiber *f, void (*entry)());

/* Saves where `from` is and continues with `to`; returns when something switches back. `from_ends`:
 * nothing ever will. */
void fiber_switch(fiber *from, fiber *to, bool from_ends);

/* First thing in an entry(): completes the announcement of the switch to it. */
void fiber_entered();

/* By machine: fiber_x86_64.cpp, fiber_ucontext.cpp. */
void fiber_machine_prepare(fiber *f, void (*entry)());
void fiber_machine_switch(fiber *from, fiber *to);

} // namespace cudasim

#endif
