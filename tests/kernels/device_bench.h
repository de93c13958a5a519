/* What the benchmarks of a device share: they reach it through the op table alone, so that the same
 * programs measure a GPU and, with small shapes, check themselves on any machine.
 *
 * An op is timed as the server uses it: many calls are enqueued, then one synchronize; the time of
 * a call is that of the batch divided by its calls, and the figure is the median of several
 * batches. A call that costs the device less than the host needs to enqueue it shows the host's
 * cost. What the calls read is rotated through more memory than a cache holds. */
#ifndef QUIRE_TESTS_KERNELS_DEVICE_BENCH_H
#define QUIRE_TESTS_KERNELS_DEVICE_BENCH_H

#include "kernels/backend.h"

#include <stddef.h>
#include <stdint.h>

struct device_bench {
    struct backend *backend;
    enum dtype dtype;     /* of weights, and of the KV cache where the backend leaves a choice */
    double batch_seconds; /* length a timed batch aims at */
    int num_batches;
    size_t rotate_bytes; /* what is read before the same memory is read again, at least */
    bool by_thread_time; /* the one thread that works is this one */
};

/* Opens the device that argv[1] names with the 16-bit type argv[2] names; `config` gives the sizes.
 * On failure ends the program: status 77 when the device is not there, else 2. Timing is set to
 * what a GPU needs. */
void device_bench_open(struct device_bench *bench, int argc, char **argv,
                       const struct backend_config *config);
void device_bench_close(struct device_bench *bench);

/* Ends the program with status 1. */
_Noreturn void device_bench_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* One kind of call. `call` enqueues call number i. */
struct device_bench_job {
    void *context;
    void (*begin)(void *context); /* before each batch, not timed; NULL: nothing */
    void (*call)(void *context, int64_t i);
    int64_t max_calls; /* of a batch; 0: no limit */
};

struct device_bench_time {
    double us;        /* of a call: the median batch */
    double us_lowest; /* the fastest and the slowest batch: the spread */
    double us_highest;
    int64_t num_calls; /* of a batch */
    int num_batches;   /* timed */
    double start, end; /* of the median batch, in seconds of the clock: CLOCK_MONOTONIC for a GPU */
};

struct device_bench_time device_bench_run(struct device_bench *bench,
                                          const struct device_bench_job *job);

/* Waits for the device; ends the program when it has failed. */
void device_bench_wait(struct device_bench *bench);

/* Host memory, zeroed; never NULL. free() */
void *device_bench_host(size_t count, size_t bytes);
/* Fills n elements of dtype with random numbers of about a normal distribution's shape. */
void device_bench_random(enum dtype dtype, float deviation, void *out, size_t n);

/* Device memory full of random numbers of dtype. */
struct buffer device_bench_buffer(struct device_bench *bench, enum dtype dtype, float deviation,
                                  size_t n);

/* Equal pieces of device memory, rotate_bytes together at least. Piece i % num_pieces serves call
 * i. */
struct device_bench_ring {
    struct buffer buffer;
    size_t piece_bytes;
    int64_t num_pieces;
};
void device_bench_ring_init(struct device_bench *bench, enum dtype dtype, float deviation,
                            size_t elements, struct device_bench_ring *out);
void *device_bench_ring_at(const struct device_bench_ring *ring, int64_t i);
void device_bench_ring_finish(struct device_bench *bench, struct device_bench_ring *ring);

/* What a call is for: the least it has to move and to do, and the tokens it gives. 0: does not
 * apply. */
struct device_bench_work {
    double bytes, flops, tokens;
};

/* One line of JSON: {"op": ..., "shape": ..., "us": ..., ..., "bytes": ..., "flops": ...} and, with
 * tokens, "tokens_per_s". */
void device_bench_print(const char *op, const char *shape, struct device_bench_time time,
                        struct device_bench_work work);

#endif
