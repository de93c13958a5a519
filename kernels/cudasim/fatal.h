/* A fault of the simulated program: one line to stderr that names kernel, block and thread (when
 * one is running), then abort(), as a debugger wants it. */
#ifndef CUDASIM_FATAL_H
#define CUDASIM_FATAL_H

namespace cudasim {
[[noreturn]] __attribute__((format(printf, 1, 2))) void fatal(const char *format, ...);
}

#endif
