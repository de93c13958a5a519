/* What the benchmarks of a device share: they reach it through the op table alone, so that the same
 * programs measure a GPU and, with small shapes, check themselves on any machine.
 *
 * The time of a call is that of a batch divided by its calls, and the figure is the median of
 * several batches. Where the device records what it is given and the calls do not wait, a batch is
 * recorded and its replays are timed by the device's clock (device_replay.h). Else it is timed by
 * the host's, as the server uses the op: many calls are enqueued, then one synchronize; a call that
 * costs the device less than the host needs to enqueue it then shows the host's cost.
 *
 * What the calls read is rotated through more memory than a cache holds; a replay begins again with
 * the first call's, so that what a batch of small calls goes through may stay in a cache, as it
 * does within a step. */
#ifndef QUIRE_TESTS_KERNELS_DEVICE_BENCH_H
#define QUIRE_TESTS_KERNELS_DEVICE_BENCH_H

#include "kernels/backend.h"

#include <stddef.h>
#include <stdint.h>

enum { DEVICE_BENCH_MAX_BATCHES = 31 };

struct device_bench {
    struct backend *backend;
    enum dtype dtype;     /* of weights, and of the KV cache where the backend leaves a choice */
    double batch_seconds; /* length a timed batch aims at */
    int num_batches;      /* at most DEVICE_BENCH_MAX_BATCHES */
    size_t rotate_bytes;  /* what is read before the same memory is read again, at least */
    bool by_thread_time;  /* the one thread that works is this one */
};

/* Opens the device that argv[1] names with the 16-bit type argv[2] names; `config` gives the sizes.
 * On failure ends the program: status 77 when the device is not there, else 2. Timing is set to
 * what a GPU needs. */
void device_bench_open(struct device_bench *bench, int argc, char **argv,
                       const struct backend_config *config);
void device_bench_close(struct device_bench *bench);

/* Ends the program with status 1. */
_Noreturn void device_bench_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* What a call writes, or the beginning of it: the same whenever the same calls are made. */
struct device_bench_result {
    void *data;
    size_t bytes;
    bool on_host; /* the wait, or the device, writes it there */
};

/* One kind of call. `call` enqueues call number i. */
struct device_bench_job {
    void *context;
    void (*begin)(void *context); /* before each batch, not timed; NULL: nothing */
    void (*call)(void *context, int64_t i);
    /* Of call i, the last of its batch. NULL: the calls wait. */
    struct device_bench_result (*result)(void *context, int64_t i);
    int64_t max_calls; /* of a batch; 0: no limit */
};

struct device_bench_time {
    double us;        /* of a call: the median batch */
    double us_lowest; /* the fastest and the slowest batch: the spread */
    double us_highest;
    int64_t num_calls; /* of a batch */
    int num_batches;   /* timed */
    /* Of the median batch, in seconds of the host's clock, CLOCK_MONOTONIC for a GPU; by the
     * device's clock: of all of them. */
    double start, end;
    bool by_device; /* the device's clock */
};

struct device_bench_time device_bench_run(struct device_bench *bench,
                                          const struct device_bench_job *job);

/* Calls first .. first + count - 1 as one batch, and waits for it. */
void device_bench_call(struct device_bench *bench, const struct device_bench_job *job,
                       int64_t first, int64_t count);

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

/* One line of JSON: {"op": ..., "shape": ..., "us": ..., "clock": "device" or "host", ..., "bytes":
 * ..., "flops": ...} and, with tokens, "tokens_per_s"; then `more`, which is empty or begins with a
 * comma. */
void device_bench_print(const char *op, const char *shape, struct device_bench_time time,
                        struct device_bench_work work, const char *more);

#endif
