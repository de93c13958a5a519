#include "fatal.h"

#include "block.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

namespace cudasim {

void fatal(const char *format, ...) {
    fputs("cudasim: ", stderr);
    if (running_kernel != nullptr) {
        const uint3 &b = current_grid.block_index;
        fprintf(stderr, "%s, block (%u, %u, %u), ", running_kernel, b.x, b.y, b.z);
        if (current_thread != nullptr) {
            const uint3 &t = current_thread->thread_index;
            fprintf(stderr, "thread (%u, %u, %u): ", t.x, t.y, t.z);
        }
    }
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    abort();
}

} // namespace cudasim
