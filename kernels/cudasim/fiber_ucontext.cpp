/* The switch for machines without one of their own: POSIX contexts, about thirty times slower since
 * each switch also asks the kernel for the signal mask. */
#include "fiber.h"

#include <ucontext.h>

namespace cudasim {

static ucontext_t *context_of(fiber *f) {
    if (f->context == nullptr)
        f->context = new ucontext_t;
    return static_cast<ucontext_t *>(f->context);
}

void fiber_machine_prepare(fiber *f, void (*entry)()) {
    ucontext_t *context = context_of(f);
    getcontext(context);
    context->uc_stack.ss_sp = f->stack;
    context->uc_stack.ss_size = f->stack_bytes;
    context->uc_link = nullptr;
    makecontext(context, entry, 0);
}

void fiber_machine_switch(fiber *from, fiber *to) {
    swapcontext(context_of(from), context_of(to));
}

} // namespace cudasim
