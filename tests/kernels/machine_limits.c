#include "tests/kernels/machine_limits.h"

#include "tests/kernels/machine_loops.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PROBE_LOOPS 400000
#define PROBE_REPEATS 12
#define READ_BYTES 4e8 /* per repeat */
#define READ_REPEATS 3

double machine_limits_thread_time(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double best_gmacs(void (*loop)(long num_loops), double macs_per_loop) {
    double best = 0.0;
    for (int i = 0; loop != NULL && i < PROBE_REPEATS; i++) {
        double start = machine_limits_thread_time();
        loop(PROBE_LOOPS);
        double rate = macs_per_loop * PROBE_LOOPS / (machine_limits_thread_time() - start) / 1e9;
        best = rate > best ? rate : best;
    }
    return best;
}

static double best_read_gbs(const struct machine_loops *loops, const char *data, size_t bytes) {
    double best = 0.0;
    long num_passes = (long)(READ_BYTES / (double)bytes) + 1;
    for (int i = 0; i < READ_REPEATS; i++) {
        double start = machine_limits_thread_time();
        for (long pass = 0; pass < num_passes; pass++)
            loops->read(data, bytes);
        double seconds = machine_limits_thread_time() - start;
        double rate = (double)bytes * (double)num_passes / seconds / 1e9;
        best = rate > best ? rate : best;
    }
    return best;
}

void machine_limits_probe(struct machine_limits *out) {
    struct machine_loops loops = machine_loops_select();
    size_t bytes = (size_t)512 << 20;
    char *data = aligned_alloc(4096, bytes);
    *out = (struct machine_limits){.vectors = loops.vectors};
    out->int8_gmacs = best_gmacs(loops.int8, loops.int8_macs);
    out->float_gmacs = best_gmacs(loops.fma, loops.fma_macs);
    if (data == NULL)
        return;
    memset(data, 1, bytes);
    out->read_1m_gbs = best_read_gbs(&loops, data, (size_t)1 << 20);
    out->read_64m_gbs = best_read_gbs(&loops, data, (size_t)64 << 20);
    out->read_512m_gbs = best_read_gbs(&loops, data, bytes);
    free(data);
}
