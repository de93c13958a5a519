/* The switch for x86-64, System V ABI: saves what a callee must keep, swaps stacks. The floating
 * point control words are left alone, since kernels do not change them. */
#include "fiber.h"

#include <stdint.h>

extern "C" void cudasim_switch_stacks(void **save, void *to);

__asm__(".text\n"
        ".globl cudasim_switch_stacks\n"
        ".hidden cudasim_switch_stacks\n"
        ".type cudasim_switch_stacks, @function\n"
        "cudasim_switch_stacks:\n"
        "    push %rbp\n"
        "    push %rbx\n"
        "    push %r12\n"
        "    push %r13\n"
        "    push %r14\n"
        "    push %r15\n"
        "    mov %rsp, (%rdi)\n"
        "    mov %rsi, %rsp\n"
        "    pop %r15\n"
        "    pop %r14\n"
        "    pop %r13\n"
        "    pop %r12\n"
        "    pop %rbx\n"
        "    pop %rbp\n"
        "    ret\n"
        ".size cudasim_switch_stacks, . - cudasim_switch_stacks\n");

namespace cudasim {

static const int NUM_SAVED = 6;

/* The stack as the switch would have left it, `entry` where it returns to, and above that the
 * return address of a call that never was: at its first instruction a function finds the stack
 * pointer 8 past a multiple of 16. */
void fiber_machine_prepare(fiber *f, void (*entry)()) {
    uintptr_t *top = reinterpret_cast<uintptr_t *>(f->stack + f->stack_bytes);
    *--top = 0;
    *--top = reinterpret_cast<uintptr_t>(entry);
    for (int i = 0; i < NUM_SAVED; i++)
        *--top = 0;
    f->context = top;
}

void fiber_machine_switch(fiber *from, fiber *to) {
    cudasim_switch_stacks(&from->context, to->context);
}

} // namespace cudasim
