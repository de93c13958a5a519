/* Speed of the matrix product: 10^9 multiply-adds per second by element type, shape and number of
 * rows, with the limits of the machine measured beside it.
 *
 *   bench_linear [ISA [THREADS [TYPE..]]]     default: auto 1, every type
 *
 * Each cell takes turns over copies of the matrix that together exceed the second cache many times,
 * as the layers of a model do, but for shapes that are `hot`: one copy, which stays in it, shows
 * what the instructions can do. The time includes quantising the activations. Best of several
 * repeats, because other work on the machine only ever makes it slower. */
#include "kernels/backend.h"
#include "tests/kernels/machine_limits.h"
#include "tests/kernels/random_weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define COPIES_BYTES ((size_t)256 << 20) /* more than a cache holds */
#define MAX_COPIES 512
#define MAX_ROWS 64
#define CELL_SECONDS 0.012
#define REPEATS 3

/* Those whose rows are not whole blocks of a type are left out. */
static const struct shape {
    int32_t rows, cols;
    bool is_hot;
} shapes[] = {{512, 576, true},    {1536, 576, false}, {576, 1536, false},
              {49152, 576, false}, {512, 2048, true},  {2048, 2048, false}};
static const int32_t row_counts[] = {1, 2, 3, 4, 5, 8, 9, 12, 13, 16, 23, 32, 35, 64};

struct bench {
    struct backend *backend;
    int num_threads;
    struct matrix *copies[MAX_COPIES];
    int num_copies;
    int32_t rows, cols;
    size_t bytes; /* of one copy */
    float *x;
    float *out;
};

_Noreturn static void fail(const char *message) {
    fprintf(stderr, "bench_linear: %s\n", message);
    exit(1);
}

static void *allocate(size_t bytes) {
    void *p = calloc(1, bytes);
    if (p == NULL)
        fail("out of memory");
    return p;
}

static void *random_matrix(enum dtype dtype, int32_t rows, int32_t cols) {
    size_t row_bytes = dtype_row_bytes(dtype, (size_t)cols);
    uint8_t *data = allocate(row_bytes * (size_t)rows);
    uint64_t seed = 1;
    for (int32_t r = 0; r < rows; r++)
        random_weights_row(&seed, dtype, data + (size_t)r * row_bytes, (size_t)cols);
    return data;
}

static void bench_open(struct bench *bench, enum dtype dtype, const struct shape *shape) {
    int32_t rows = shape->rows, cols = shape->cols;
    struct matrix_part part = {
        .dtype = dtype, .rows = rows, .data = random_matrix(dtype, rows, cols)};
    struct error err;
    bench->rows = rows;
    bench->cols = cols;
    bench->bytes = dtype_row_bytes(dtype, (size_t)cols) * (size_t)rows;
    size_t copies = shape->is_hot ? 1 : COPIES_BYTES / bench->bytes + 1;
    bench->num_copies = copies < MAX_COPIES ? (int)copies : MAX_COPIES;
    for (int i = 0; i < bench->num_copies; i++)
        if (bench->backend->ops->matrix_create(bench->backend, &part, 1, cols, MATRIX_LINEAR,
                                               &bench->copies[i], &err) != 0)
            fail(err.message);
    free((void *)part.data);
    bench->x = allocate((size_t)MAX_ROWS * (size_t)cols * sizeof(float));
    bench->out = allocate((size_t)MAX_ROWS * (size_t)rows * sizeof(float));
    for (int i = 0; i < MAX_ROWS * cols; i++)
        bench->x[i] = (float)(i * 37 % 201 - 100) / 100.0f;
}

static void bench_close(struct bench *bench) {
    for (int i = 0; i < bench->num_copies; i++)
        bench->backend->ops->matrix_destroy(bench->backend, bench->copies[i]);
    free(bench->x);
    free(bench->out);
}

/* One thread is timed by its own clock, several by the time of day. */
static double now(const struct bench *bench) {
    if (bench->num_threads == 1)
        return machine_limits_thread_time();
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Seconds per call, best repeat. */
static double time_rows(const struct bench *bench, int32_t num_rows) {
    struct linear_args args = {
        .x = bench->x, .out = bench->out, .num_rows = num_rows, .scale = 1.0F, .float_out = true};
    double best = 1e9;
    int copy = 0;
    for (int repeat = 0; repeat < REPEATS; repeat++) {
        double start = now(bench), seconds;
        int calls = 0;
        do {
            args.weight = bench->copies[copy++ % bench->num_copies];
            bench->backend->ops->linear(bench->backend, &args);
            calls++;
            seconds = now(bench) - start;
        } while (seconds < CELL_SECONDS);
        best = seconds / calls < best ? seconds / calls : best;
    }
    return best;
}

static void print_limits(int num_threads) {
    struct machine_limits limits;
    machine_limits_probe(num_threads, &limits);
    printf("%d threads at most (%s): int8 %.0f GMAC/s, float %.0f GMAC/s; read 1 MiB %.0f, "
           "64 MiB %.1f, 512 MiB %.1f GB/s\n",
           num_threads, limits.vectors, limits.int8_gmacs, limits.float_gmacs, limits.read_1m_gbs,
           limits.read_64m_gbs, limits.read_512m_gbs);
}

static void bench_matrix(struct bench *bench, enum dtype dtype, const struct shape *shape) {
    bench_open(bench, dtype, shape);
    printf("%-6s %5d x %4d%s:", dtype_name(dtype), shape->rows, shape->cols,
           shape->is_hot ? " hot" : "");
    for (size_t m = 0; m < sizeof(row_counts) / sizeof(row_counts[0]); m++) {
        double seconds = time_rows(bench, row_counts[m]);
        double macs = (double)row_counts[m] * shape->rows * shape->cols;
        printf("  %d: %.0f", row_counts[m], macs / seconds / 1e9);
        if (row_counts[m] == 1)
            printf(" (%.1f)", (double)bench->bytes / seconds / 1e9);
    }
    printf("\n");
    fflush(stdout);
    bench_close(bench);
}

static bool is_named(enum dtype dtype, int num_names, char **names) {
    for (int i = 0; i < num_names; i++)
        if (strcmp(names[i], dtype_name(dtype)) == 0)
            return true;
    return num_names == 0;
}

int main(int argc, char **argv) {
    struct backend_config config = {.isa = argc > 1 ? argv[1] : "auto",
                                    .num_threads =
                                        argc > 2 && atoi(argv[2]) > 0 ? atoi(argv[2]) : 1,
                                    .limits.max_num_batched_tokens = MAX_ROWS,
                                    .limits.max_num_seqs = 1};
    struct error err;
    struct bench bench = {.backend = backend_open("cpu", &config, &err),
                          .num_threads = config.num_threads};
    if (bench.backend == NULL)
        fail(err.message);
    print_limits(config.num_threads);
    printf("%s\nGMAC/s by rows; in brackets GB/s of weights read at 1 row\n",
           bench.backend->description);
    for (int dtype = 0; dtype < DTYPE_COUNT; dtype++)
        for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++)
            if (shapes[s].cols % dtype_block_elements((enum dtype)dtype) == 0 &&
                is_named((enum dtype)dtype, argc > 3 ? argc - 3 : 0, argv + 3))
                bench_matrix(&bench, (enum dtype)dtype, &shapes[s]);
    backend_close(bench.backend);
    return 0;
}
