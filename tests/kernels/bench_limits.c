/* What a GPU can do at most, by its own clock, one line of JSON:
 *
 *   bench_limits [OPTION VALUE]...          bench_limits_sim on the simulator
 *
 *   mib    memory that is copied, and read; default: 4096
 *   size   of a square bf16 product; default: 8192
 *   runs   of each, whose median is taken; default: 15
 *
 * A copy counts bytes read and written. The product is by the fastest of the algorithms that
 * cuBLASLt names first, on random numbers, since zeros run faster than real ones do. What was
 * copied and read is checked: a limit of work that was not done is none. */
#include "tests/kernels/product_timer.h"
#include "tests/kernels/read_limit_launch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_RUNS = 101, NUM_CANDIDATES = 8, TILE_WORDS = 1 << 18 };

#define CUDA(call) product_timer_check(call, #call)

struct settings {
    long long mib, size, runs;
};

struct limits_bench {
    struct settings settings;
    struct cudaDeviceProp gpu;
    cudaStream_t stream;
    cudaEvent_t start, end;
    size_t bytes;
    void *source, *target;
    void *sum;         /* uint32_t in device memory */
    uint32_t expected; /* sum of the source */
};

static long long read_number(const char *name, const char *text, long long most) {
    char *end;
    long long value = strtoll(text, &end, 10);
    if (*text == '\0' || *end != '\0' || value < 1 || value > most)
        product_timer_fail("%s: %s (allowed: 1 to %lld)", name, text, most);
    return value;
}

static struct settings read_settings(int argc, char **argv) {
    struct settings s = {.mib = 4096, .size = 8192, .runs = 15};
    if (argc % 2 == 0)
        product_timer_fail("option %s has no value", argv[argc - 1]);
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "mib") == 0)
            s.mib = read_number(argv[i], argv[i + 1], 1 << 20);
        else if (strcmp(argv[i], "size") == 0)
            s.size = read_number(argv[i], argv[i + 1], 1 << 15);
        else if (strcmp(argv[i], "runs") == 0)
            s.runs = read_number(argv[i], argv[i + 1], MAX_RUNS);
        else
            product_timer_fail("unknown option %s", argv[i]);
    }
    return s;
}

/* --- Memory --- */

/* Random words, a tile of them over and over. */
static void fill_source(struct limits_bench *bench) {
    uint32_t *tile = malloc(TILE_WORDS * sizeof(*tile));
    if (tile == NULL)
        product_timer_fail("no memory for random numbers");
    uint64_t seed = 20261123;
    uint32_t tile_sum = 0;
    for (size_t i = 0; i < TILE_WORDS; i++) {
        seed = seed * 6364136223846793005U + 1442695040888963407U;
        tile[i] = (uint32_t)(seed >> 32);
        tile_sum += tile[i];
    }
    const size_t tile_bytes = TILE_WORDS * sizeof(*tile);
    for (size_t done = 0; done < bench->bytes; done += tile_bytes) {
        CUDA(cudaMemcpy((char *)bench->source + done, tile, tile_bytes, cudaMemcpyHostToDevice));
        bench->expected += tile_sum;
    }
    free(tile);
}

static void open_bench(struct limits_bench *bench) {
    product_timer_find_device();
    CUDA(cudaGetDeviceProperties(&bench->gpu, 0));
    CUDA(cudaStreamCreateWithFlags(&bench->stream, cudaStreamNonBlocking));
    CUDA(cudaEventCreateWithFlags(&bench->start, cudaEventDefault));
    CUDA(cudaEventCreateWithFlags(&bench->end, cudaEventDefault));
    bench->bytes = (size_t)bench->settings.mib << 20;
    CUDA(cudaMalloc(&bench->source, bench->bytes));
    CUDA(cudaMalloc(&bench->target, bench->bytes));
    CUDA(cudaMalloc(&bench->sum, sizeof(uint32_t)));
    fill_source(bench);
    CUDA(cudaDeviceSynchronize()); /* a copy from the host may return before it is there */
}

static void close_bench(struct limits_bench *bench) {
    CUDA(cudaFree(bench->sum));
    CUDA(cudaEventDestroy(bench->end));
    CUDA(cudaEventDestroy(bench->start));
    CUDA(cudaStreamDestroy(bench->stream));
}

static void copy(struct limits_bench *bench) {
    CUDA(cudaMemcpyAsync(bench->target, bench->source, bench->bytes, cudaMemcpyDeviceToDevice,
                         bench->stream));
}

static void read(struct limits_bench *bench) {
    CUDA(launch_read(bench->stream, bench->source, bench->bytes, bench->gpu.multiProcessorCount,
                     bench->sum));
}

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median of several runs, after one that is not counted. */
static double time_seconds(struct limits_bench *bench, void (*work)(struct limits_bench *bench)) {
    double seconds[MAX_RUNS];
    int runs = (int)bench->settings.runs;
    work(bench);
    for (int i = 0; i < runs; i++) {
        float ms = 0;
        CUDA(cudaEventRecord(bench->start, bench->stream));
        work(bench);
        CUDA(cudaEventRecord(bench->end, bench->stream));
        CUDA(cudaEventSynchronize(bench->end));
        CUDA(cudaEventElapsedTime(&ms, bench->start, bench->end));
        seconds[i] = 1e-3 * (double)ms;
    }
    qsort(seconds, (size_t)runs, sizeof(seconds[0]), compare_doubles);
    return seconds[runs / 2];
}

/* Reads `memory` once more and compares the sum. */
static void check_sum(struct limits_bench *bench, const void *memory, const char *what) {
    uint32_t sum = 0;
    CUDA(cudaMemset(bench->sum, 0, sizeof(uint32_t)));
    CUDA(cudaDeviceSynchronize());
    CUDA(launch_read(bench->stream, memory, bench->bytes, bench->gpu.multiProcessorCount,
                     bench->sum));
    CUDA(cudaStreamSynchronize(bench->stream));
    CUDA(cudaMemcpy(&sum, bench->sum, sizeof(sum), cudaMemcpyDeviceToHost));
    if (sum != bench->expected)
        product_timer_fail("%s: the sum of its words is %u, not %u", what, sum, bench->expected);
}

/* --- The product --- */

static double time_product(const struct settings *s) {
    const struct cuda_product_form form = {.type = CUDA_R_16BF,
                                           .out_type = CUDA_R_16BF,
                                           .rows = (int32_t)s->size,
                                           .cols = (int32_t)s->size,
                                           .out_stride = (int32_t)s->size};
    cublasLtMatmulAlgo_t candidates[NUM_CANDIDATES];
    struct product_timer timer;
    double best = 0;
    product_timer_init(&timer, &form, false, (int32_t)s->size, 1, 1);
    product_timer_set(&timer, (int32_t)s->size);
    float *seen = calloc(PRODUCT_TIMER_MAX_SEEN * (size_t)s->size, sizeof(*seen));
    if (seen == NULL)
        product_timer_fail("no memory for rows of a product");
    int count = product_timer_candidates(&timer, NUM_CANDIDATES, candidates);
    for (int i = 0; i < count; i++) {
        if (!product_timer_multiply(&timer, &candidates[i], seen))
            continue;
        if (!(product_timer_error(&timer, seen) <= 1)) /* NaN */
            product_timer_fail("the product by candidate %d is wrong", i);
        cudaGraphExec_t graph = product_timer_capture(&timer, &candidates[i]);
        double us[MAX_RUNS];
        product_timer_replay(&timer, graph);
        for (int run = 0; run < (int)s->runs; run++)
            us[run] = product_timer_replay(&timer, graph);
        CUDA(cudaGraphExecDestroy(graph));
        qsort(us, (size_t)s->runs, sizeof(us[0]), compare_doubles);
        double median = us[s->runs / 2];
        best = best == 0 || median < best ? median : best;
    }
    free(seen);
    product_timer_finish(&timer);
    if (best == 0)
        product_timer_fail("cuBLASLt has no algorithm for the product");
    return 1e-6 * best;
}

int main(int argc, char **argv) {
    struct limits_bench bench = {.settings = read_settings(argc, argv)};
    open_bench(&bench);
    double copy_s = time_seconds(&bench, copy), read_s = time_seconds(&bench, read);
    check_sum(&bench, bench.source, "the memory that is read");
    check_sum(&bench, bench.target, "the copy");
    CUDA(cudaFree(bench.source));
    CUDA(cudaFree(bench.target));
    double product_s = time_product(&bench.settings), size = (double)bench.settings.size;
    printf("{\"gpu\": \"%s\", \"multiprocessors\": %d, \"memory_bytes\": %zu, \"l2_bytes\": %d, "
           "\"copy_bytes_per_s\": %.0f, \"read_bytes_per_s\": %.0f, \"bf16_flops_per_s\": %.0f}\n",
           bench.gpu.name, bench.gpu.multiProcessorCount, bench.gpu.totalGlobalMem,
           bench.gpu.l2CacheSize, 2 * (double)bench.bytes / copy_s, (double)bench.bytes / read_s,
           2 * size * size * size / product_s);
    close_bench(&bench);
    return 0;
}
