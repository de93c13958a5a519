#include "tests/kernels/machine_limits.h"

#include "tests/kernels/machine_loops.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_THREADS 64
#define PROBE_LOOPS 400000
#define PROBE_REPEATS 12
#define READ_BYTES 4e8 /* per repeat */
#define READ_REPEATS 3

double machine_limits_thread_time(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double time_of_day(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Runs `loop` num_loops times or, if that is NULL, reads `bytes` of `data` num_loops times. */
struct probe {
    void (*loop)(long num_loops);
    void (*read)(const char *data, size_t bytes);
    const char *data;
    size_t bytes;
    long num_loops;
};

static void *run_probe(void *argument) {
    const struct probe *probe = argument;
    if (probe->loop != NULL)
        probe->loop(probe->num_loops);
    else
        for (long pass = 0; pass < probe->num_loops; pass++)
            probe->read(probe->data, probe->bytes);
    return NULL;
}

/* Seconds that all threads take; each reads a part of the data. */
static double time_probe(const struct probe *whole, int num_threads) {
    pthread_t threads[MAX_THREADS];
    struct probe probes[MAX_THREADS];
    double start = num_threads == 1 ? machine_limits_thread_time() : time_of_day();
    size_t part = whole->bytes / (size_t)num_threads / 256 * 256;
    for (int i = 0; i < num_threads; i++) {
        probes[i] = *whole;
        probes[i].data = whole->data == NULL ? NULL : whole->data + (size_t)i * part;
        probes[i].bytes = part;
        if (i > 0 && pthread_create(&threads[i], NULL, run_probe, &probes[i]) != 0)
            abort();
    }
    run_probe(&probes[0]);
    for (int i = 1; i < num_threads; i++)
        pthread_join(threads[i], NULL);
    return (num_threads == 1 ? machine_limits_thread_time() : time_of_day()) - start;
}

static double best_gmacs(void (*loop)(long num_loops), double macs_per_loop, int num_threads) {
    const struct probe probe = {.loop = loop, .num_loops = PROBE_LOOPS};
    double best = 0.0;
    for (int i = 0; loop != NULL && i < PROBE_REPEATS; i++) {
        double rate = macs_per_loop * PROBE_LOOPS * num_threads / time_probe(&probe, num_threads);
        best = rate / 1e9 > best ? rate / 1e9 : best;
    }
    return best;
}

static double best_read_gbs(const struct machine_loops *loops, const char *data, size_t bytes,
                            int num_threads) {
    const struct probe probe = {.read = loops->read,
                                .data = data,
                                .bytes = bytes,
                                .num_loops = (long)(READ_BYTES / (double)bytes) + 1};
    double best = 0.0;
    for (int i = 0; i < READ_REPEATS; i++) {
        double rate =
            (double)bytes * (double)probe.num_loops / time_probe(&probe, num_threads) / 1e9;
        best = rate > best ? rate : best;
    }
    return best;
}

void machine_limits_probe(int num_threads, struct machine_limits *out) {
    struct machine_loops loops = machine_loops_select();
    size_t bytes = (size_t)512 << 20;
    char *data = aligned_alloc(4096, bytes);
    num_threads = num_threads > MAX_THREADS ? MAX_THREADS : num_threads;
    *out = (struct machine_limits){.vectors = loops.vectors};
    out->int8_gmacs = best_gmacs(loops.int8, loops.int8_macs, num_threads);
    out->float_gmacs = best_gmacs(loops.fma, loops.fma_macs, num_threads);
    if (data == NULL)
        return;
    memset(data, 1, bytes);
    out->read_1m_gbs = best_read_gbs(&loops, data, (size_t)1 << 20, num_threads);
    out->read_64m_gbs = best_read_gbs(&loops, data, (size_t)64 << 20, num_threads);
    out->read_512m_gbs = best_read_gbs(&loops, data, bytes, num_threads);
    free(data);
}
