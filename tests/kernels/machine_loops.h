/* The instruction loops behind machine_limits.c, for one kind of processor per file. */
#ifndef QUIRE_TESTS_KERNELS_MACHINE_LOOPS_H
#define QUIRE_TESTS_KERNELS_MACHINE_LOOPS_H

#include <stddef.h>

/* int8 and fma may be NULL. read: bytes is a multiple of 256. */
struct machine_loops {
    const char *vectors;
    void (*int8)(long num_loops);
    double int8_macs; /* per loop */
    void (*fma)(long num_loops);
    double fma_macs;
    void (*read)(const char *data, size_t bytes);
};

struct machine_loops machine_loops_select(void);

#endif
