/* Random data is made once as a tile of TILE_BYTES and laid over the memory to fill: first by
 * upload, then by the device itself, which copies what it has to as much again until all is full.
 * No two pieces of a few MiB are the same to a cache, which sees addresses. */
#include "kernels/kv_type.h"
#include "tests/kernels/device_bench.h"
#include "tests/kernels/device_replay.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TILE_BYTES ((size_t)1 << 20)

_Noreturn void device_bench_fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(1);
}

void device_bench_open(struct device_bench *bench, int argc, char **argv,
                       const struct backend_config *config) {
    struct backend_config filled = *config;
    struct error err = {0};
    if (argc < 3 || (strcmp(argv[2], "bf16") != 0 && strcmp(argv[2], "f16") != 0)) {
        fprintf(stderr, "usage: %s DEVICE bf16|f16 [OPTION VALUE]...\n", argv[0]);
        exit(2);
    }
    *bench = (struct device_bench){
        .batch_seconds = 0.01, .num_batches = 9, .rotate_bytes = (size_t)256 << 20};
    bench->dtype = strcmp(argv[2], "f16") == 0 ? DTYPE_F16 : DTYPE_BF16;
    filled.activation_dtype = bench->dtype;
    bench->by_thread_time = strcmp(argv[1], "cpu") == 0 && config->num_threads == 1;
    bench->backend = backend_open(argv[1], &filled, &err);
    if (bench->backend == NULL) {
        fprintf(stderr, "%s\n", err.message);
        exit(err.code == ERROR_DEVICE ? 77 : 2);
    }
}

void device_bench_close(struct device_bench *bench) {
    backend_close(bench->backend);
}

void device_bench_wait(struct device_bench *bench) {
    struct error err = {0};
    if (bench->backend->ops->synchronize(bench->backend, &err) != 0)
        device_bench_fail("the device failed: %s", err.message);
}

/* --- Time --- */

static double now(const struct device_bench *bench) {
    struct timespec t;
    clock_gettime(bench->by_thread_time ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

struct timed_batch {
    double seconds, end;
};

/* `count` calls from call number `first`. */
static struct timed_batch run_batch(struct device_bench *bench, const struct device_bench_job *job,
                                    int64_t first, int64_t count) {
    if (job->begin != NULL)
        job->begin(job->context);
    device_bench_wait(bench);
    double start = now(bench);
    for (int64_t i = 0; i < count; i++)
        job->call(job->context, first + i);
    device_bench_wait(bench);
    double end = now(bench);
    return (struct timed_batch){end - start, end};
}

void device_bench_call(struct device_bench *bench, const struct device_bench_job *job,
                       int64_t first, int64_t count) {
    run_batch(bench, job, first, count);
}

/* Calls until a batch is long enough to be divided, and with it the warm-up. */
static int64_t choose_calls(struct device_bench *bench, const struct device_bench_job *job,
                            int64_t *io_next) {
    int64_t most = job->max_calls > 0 ? job->max_calls : 4096, count = 1;
    for (;;) {
        double seconds = run_batch(bench, job, *io_next, count).seconds;
        *io_next += count;
        if (count > 1 || seconds >= bench->batch_seconds) {
            double wanted = bench->batch_seconds / (seconds / (double)count);
            return wanted < 1.0 ? 1 : wanted < (double)most ? (int64_t)wanted : most;
        }
        count = most < 4 ? most + 1 : 4;
    }
}

static int compare_batches(const void *a, const void *b) {
    double x = ((const struct timed_batch *)a)->seconds;
    double y = ((const struct timed_batch *)b)->seconds;
    return (x > y) - (x < y);
}

/* The same batch again and again, by the device's clock. False: it cannot be. */
static bool replay_batches(struct device_bench *bench, const struct device_bench_job *job,
                           int64_t first, int64_t count, struct timed_batch *out) {
    double seconds[DEVICE_BENCH_MAX_BATCHES];
    if (!device_replay_run(bench, job, first, count, seconds))
        return false;
    for (int i = 0; i < bench->num_batches; i++)
        out[i] = (struct timed_batch){.seconds = seconds[i]};
    return true;
}

struct device_bench_time device_bench_run(struct device_bench *bench,
                                          const struct device_bench_job *job) {
    struct timed_batch batches[DEVICE_BENCH_MAX_BATCHES];
    int64_t next = 0, count = choose_calls(bench, job, &next);
    int num_batches = bench->num_batches;
    double start = now(bench);
    bool by_device = replay_batches(bench, job, next, count, batches);
    double end = now(bench);
    for (int i = 0; !by_device && i < num_batches; i++) {
        batches[i] = run_batch(bench, job, next, count);
        next += count;
    }
    qsort(batches, (size_t)num_batches, sizeof(batches[0]), compare_batches);
    const struct timed_batch *median = &batches[num_batches / 2];
    double us = 1e6 / (double)count;
    return (struct device_bench_time){.us = us * median->seconds,
                                      .us_lowest = us * batches[0].seconds,
                                      .us_highest = us * batches[num_batches - 1].seconds,
                                      .num_calls = count,
                                      .num_batches = num_batches,
                                      .start = by_device ? start : median->end - median->seconds,
                                      .end = by_device ? end : median->end,
                                      .by_device = by_device};
}

/* --- Memory --- */

void *device_bench_host(size_t count, size_t bytes) {
    void *p = calloc(count > 0 ? count : 1, bytes);
    if (p == NULL)
        device_bench_fail("no memory for %zu x %zu bytes", count, bytes);
    return p;
}

/* The sum of four uniform numbers, whose variance is 1/3. */
static float random_value(uint64_t *seed) {
    float sum = -2.0F;
    for (int i = 0; i < 4; i++) {
        *seed = *seed * 6364136223846793005U + 1442695040888963407U;
        sum += (float)(*seed >> 40) * 0x1p-24F;
    }
    return sum * 1.7320508F;
}

void device_bench_random(enum dtype dtype, float deviation, void *out, size_t n) {
    uint64_t seed = 20261121;
    size_t bytes = dtype_row_bytes(dtype, n), tile = bytes < TILE_BYTES ? bytes : TILE_BYTES;
    size_t element = dtype_row_bytes(dtype, 1);
    for (size_t at = 0; at < tile; at += element) {
        float value = deviation * random_value(&seed);
        dtype_from_f32(dtype, &value, (char *)out + at, 1);
    }
    for (size_t done = tile; done < bytes;) {
        size_t count = bytes - done < done ? bytes - done : done;
        memcpy((char *)out + done, out, count);
        done += count;
    }
}

/* Blocks of TILE_BYTES to the device's copies: [1024][K or V][1][16][128] of two bytes. */
static struct kv_cache as_tiles(const struct device_bench *bench, const struct buffer *buffer) {
    struct kv_cache cache = {.layout = {.num_kv_heads = 1, .head_dim = 128, .block_size = 16}};
    cache.layout.type = backend_kv_type(bench->backend, kv_type_of_dtype(bench->dtype));
    cache.layout.num_layers = (int32_t)(TILE_BYTES / (2 * 16 * kv_row_bytes(&cache.layout)));
    cache.num_blocks = (int32_t)(buffer->bytes / TILE_BYTES);
    cache.buffer = *buffer;
    return cache;
}

/* The first tile to all others, what is there doubling with each round. */
static void spread_tile(struct device_bench *bench, const struct buffer *buffer) {
    struct backend *b = bench->backend;
    struct kv_cache cache = as_tiles(bench, buffer);
    int32_t num_tiles = cache.num_blocks;
    int32_t *ids = device_bench_host((size_t)num_tiles, sizeof(int32_t));
    for (int32_t i = 0; i < num_tiles; i++)
        ids[i] = i;
    for (int32_t done = 1; done < num_tiles;) {
        int32_t count = num_tiles - done < done ? num_tiles - done : done;
        b->ops->copy_blocks(
            b, &(struct copy_blocks_args){
                   .cache = &cache, .src = ids, .dst = ids + done, .num_blocks = count});
        done += count;
    }
    device_bench_wait(bench);
    free(ids);
}

struct buffer device_bench_buffer(struct device_bench *bench, enum dtype dtype, float deviation,
                                  size_t n) {
    struct backend *b = bench->backend;
    struct buffer buffer = {0};
    struct error err = {0};
    size_t bytes = dtype_row_bytes(dtype, n), tiles = (bytes + TILE_BYTES - 1) / TILE_BYTES;
    if (b->ops->buffer_alloc(b, tiles * TILE_BYTES, &buffer, &err) != 0)
        device_bench_fail("%s", err.message);
    void *tile = device_bench_host(1, TILE_BYTES);
    device_bench_random(dtype, deviation, tile, TILE_BYTES / dtype_row_bytes(dtype, 1));
    b->ops->upload(b, buffer.data, tile, TILE_BYTES);
    device_bench_wait(bench);
    free(tile);
    spread_tile(bench, &buffer);
    return buffer;
}

void device_bench_ring_init(struct device_bench *bench, enum dtype dtype, float deviation,
                            size_t elements, struct device_bench_ring *out) {
    size_t align = 256 / dtype_row_bytes(dtype, 1);
    size_t padded = (elements + align - 1) / align * align;
    out->piece_bytes = dtype_row_bytes(dtype, padded);
    out->num_pieces = 1 + (int64_t)(bench->rotate_bytes / out->piece_bytes);
    out->buffer = device_bench_buffer(bench, dtype, deviation, padded * (size_t)out->num_pieces);
}

void *device_bench_ring_at(const struct device_bench_ring *ring, int64_t i) {
    return (char *)ring->buffer.data + (size_t)(i % ring->num_pieces) * ring->piece_bytes;
}

void device_bench_ring_finish(struct device_bench *bench, struct device_bench_ring *ring) {
    bench->backend->ops->buffer_free(bench->backend, &ring->buffer);
}

void device_bench_print(const char *op, const char *shape, struct device_bench_time time,
                        struct device_bench_work work, const char *more) {
    printf(
        "{\"op\": \"%s\", \"shape\": \"%s\", \"us\": %.3f, \"clock\": \"%s\", \"us_lowest\": %.3f, "
        "\"us_highest\": %.3f, \"calls\": %lld, \"batches\": %d, "
        "\"start\": %.9f, \"end\": %.9f, \"bytes\": %.0f, \"flops\": %.0f",
        op, shape, time.us, time.by_device ? "device" : "host", time.us_lowest, time.us_highest,
        (long long)time.num_calls, time.num_batches, time.start, time.end, work.bytes, work.flops);
    if (work.tokens > 0.0)
        printf(", \"tokens_per_s\": %.2f", work.tokens / time.us * 1e6);
    printf("%s}\n", more);
    fflush(stdout);
}
