#include "tests/kernels/kernel_fixture.h"

#include "kernels/cpu/levels/cpu_levels.h"
#include "kernels/cudasim/include/cudasim/products.h"
#include "kernels/kv_type.h"

#include <dlfcn.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define EXIT_SKIPPED 77
#define EXIT_WRONG_ARGUMENTS 2

/* A whole number of elements and of 256-byte lines, so that the array is aligned as a buffer is. */
#define GUARD_BYTES 256
#define GUARD_BYTE 0xa5

/* Reads of the CPU's guards are reported, too. */
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(start, bytes) ((void)(start), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(start, bytes) ((void)(start), (void)(bytes))
#endif

/* At the start of the first guard, for _free. */
struct array_head {
    struct buffer buffer;
    size_t bytes;
};

static void fail_arguments(const char *program) {
    fprintf(stderr,
            "usage: %s [cpu | cuda|cuda-sim bf16|f16 [batch-invariant] [fp8-activations]]\n",
            program);
    exit(EXIT_WRONG_ARGUMENTS);
}

static void open_level(struct kernel_fixture *f, struct backend_config config,
                       const struct cpu_level *level, int num_threads) {
    struct error err = {0};
    config.isa = level->name;
    config.num_threads = num_threads;
    assert_true(f->num_backends < FIXTURE_MAX_BACKENDS);
    struct backend *b = backend_open("cpu", &config, &err);
    if (b == NULL)
        fail_msg("%s: %s", level->name, err.message);
    f->backends[f->num_backends++] = b;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { THREADS_STEP = 2 }; /* which sees as much in less time */
#else
enum { THREADS_STEP = 1 };
#endif

/* A level that brings formats of the product alone is enough once. */
static void open_levels(struct kernel_fixture *f, const struct backend_config *config) {
    f->bits_equal = true;
    f->dtype = DTYPE_F32;
    f->tolerance = 0x1p-24;
    for (const struct cpu_level *l = cpu_levels; l < cpu_levels + num_cpu_levels; l++) {
        if (!l->supported())
            continue;
        for (int threads = 1; l->add_ops != NULL && threads <= 3; threads += THREADS_STEP)
            open_level(f, *config, l, threads);
        if (l->add_ops == NULL)
            open_level(f, *config, l, 2);
    }
    assert_true(f->num_backends >= 3);
}

/* The simulator needs nothing that could be missing, so it is never skipped. */
static void open_device(struct kernel_fixture *f, int argc, char **argv,
                        struct backend_config config) {
    bool takes_all = argc == 4 && strcmp(argv[3], "all-multiprocessors") == 0;
    int next = takes_all ? 4 : 3;
    f->bits_equal = next < argc && strcmp(argv[next], "batch-invariant") == 0;
    next += f->bits_equal;
    f->fp8_activations = next < argc && strcmp(argv[next], "fp8-activations") == 0;
    next += f->fp8_activations;
    if (argc < 3 || next < argc)
        fail_arguments(argv[0]);
    f->dtype = strcmp(argv[2], "bf16") == 0 ? DTYPE_BF16 : DTYPE_F16;
    if (strcmp(argv[2], dtype_name(f->dtype)) != 0)
        fail_arguments(argv[0]);
    f->tolerance = f->dtype == DTYPE_BF16 ? 0x1p-8 : 0x1p-11;
    f->is_simulated = strcmp(argv[1], "cuda-sim") == 0;
    config.activation_dtype = f->dtype;
    config.batch_invariant = f->bits_equal;
    config.fp8_activations = f->fp8_activations;
    config.max_multiprocessors = takes_all ? 0 : config.max_multiprocessors;
    struct error err = {0};
    f->backends[0] = backend_open(argv[1], &config, &err);
    f->num_backends = 1;
    if (f->backends[0] == NULL) {
        fprintf(stderr, "%s: %s\n", argv[1], err.message);
        exit(f->is_simulated ? EXIT_FAILURE : EXIT_SKIPPED);
    }
    printf("%s: %s\n", f->backends[0]->name, f->backends[0]->description);
}

void kernel_fixture_open(struct kernel_fixture *f, int argc, char **argv,
                         const struct backend_config *config) {
    *f = (struct kernel_fixture){.oracle = backend_open("cpu-ref", config, NULL)};
    assert_non_null(f->oracle);
    if (argc < 2 || (argc == 2 && strcmp(argv[1], "cpu") == 0))
        open_levels(f, config);
    else
        open_device(f, argc, argv, *config);
}

void kernel_fixture_close(struct kernel_fixture *f) {
    for (int i = 0; i < f->num_backends; i++)
        backend_close(f->backends[i]);
    backend_close(f->oracle);
}

/* --- Numbers --- */

/* splitmix64 (Steele, Lea, Flood, OOPSLA 2014). */
uint32_t kernel_fixture_random(uint64_t *seed) {
    uint64_t z = *seed += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (uint32_t)((z ^ (z >> 31)) >> 32);
}

int kernel_fixture_random_in(uint64_t *seed, int low, int high) {
    return low + (int)(kernel_fixture_random(seed) % (uint32_t)(high - low + 1));
}

float kernel_fixture_uniform(uint64_t *seed) {
    return (float)(kernel_fixture_random(seed) >> 8) * 0x1p-23f - 1;
}

float kernel_fixture_normal(uint64_t *seed) {
    double u = (kernel_fixture_random(seed) + 1.0) * 0x1p-32;
    return (float)(sqrt(-2 * log(u)) * cos(3.14159265358979 * kernel_fixture_uniform(seed)));
}

float *kernel_fixture_random_floats(uint64_t *seed, size_t n) {
    float *data = kernel_fixture_memory(n * sizeof(float));
    for (size_t i = 0; i < n; i++)
        data[i] = kernel_fixture_normal(seed);
    return data;
}

float *kernel_fixture_rounded_floats(const struct kernel_fixture *f, uint64_t *seed, size_t n) {
    float *values = kernel_fixture_random_floats(seed, n);
    kernel_fixture_round(f, values, n);
    return values;
}

void kernel_fixture_round(const struct kernel_fixture *f, float *values, size_t n) {
    void *narrow = kernel_fixture_memory(dtype_row_bytes(f->dtype, n));
    dtype_from_f32(f->dtype, values, narrow, n);
    dtype_to_f32(f->dtype, narrow, values, n);
    free(narrow);
}

/* --- Memory --- */

void *kernel_fixture_memory(size_t bytes) {
    void *memory = malloc(bytes);
    assert_non_null(memory);
    return memory;
}

/* The first guard begins with the length. */
float *kernel_fixture_guarded(size_t n) {
    unsigned char *memory = kernel_fixture_memory(n * sizeof(float) + 2 * GUARD_BYTES);
    float *data = (float *)(void *)(memory + GUARD_BYTES);
    memset(memory, GUARD_BYTE, n * sizeof(float) + 2 * GUARD_BYTES);
    memcpy(memory, &n, sizeof(n));
    for (size_t i = 0; i < n; i++)
        data[i] = NAN;
    return data;
}

static void assert_guards(const unsigned char *before, size_t head_bytes,
                          const unsigned char *after, size_t bytes) {
    for (size_t i = head_bytes; i < GUARD_BYTES; i++)
        if (before[i] != GUARD_BYTE)
            fail_msg("byte %zu before an array was written to", GUARD_BYTES - i);
    for (size_t i = 0; i < GUARD_BYTES; i++)
        if (after[i] != GUARD_BYTE)
            fail_msg("byte %zu past an array of %zu bytes was written to", i, bytes);
}

void kernel_fixture_guarded_free(float *data) {
    size_t n;
    unsigned char *memory = (unsigned char *)data - GUARD_BYTES;
    memcpy(&n, memory, sizeof(n));
    assert_guards(memory, sizeof(n), (const unsigned char *)(data + n), n * sizeof(float));
    free(memory);
}

const char *kernel_fixture_bf16_products(const struct backend *b, enum dtype weights) {
    if (weights != DTYPE_BF16 && weights != DTYPE_E4M3_128)
        return "";
    const char *products =
        strstr(b->numerics, weights == DTYPE_BF16 ? "BF16 products" : "FP8 products");
    return products != NULL ? products : "";
}

const char *kernel_fixture_attention(const struct backend *b, enum kv_type type) {
    char name[64];
    snprintf(name, sizeof(name), "attention with %s by ", kv_type_name(type));
    const char *found = strstr(b->numerics, name);
    return found != NULL ? found + strlen(name) : "";
}

bool kernel_fixture_is_new_level(const struct kernel_fixture *f, int i) {
    return i == 0 || strcmp(f->backends[i]->numerics, f->backends[i - 1]->numerics) != 0;
}

static bool is_host_memory(const struct backend *b) {
    return strncmp(b->name, "cpu", 3) == 0;
}

void *kernel_fixture_put(struct backend *b, enum dtype dtype, const float *values, size_t n) {
    struct array_head head = {.bytes = dtype_row_bytes(dtype, n)};
    size_t total = head.bytes + 2 * GUARD_BYTES;
    struct error err = {0};
    if (b->ops->buffer_alloc(b, total, &head.buffer, &err) != 0)
        fail_msg("%s", err.message);
    unsigned char *image = kernel_fixture_memory(total);
    memset(image, GUARD_BYTE, total);
    memcpy(image, &head, sizeof(head));
    if (values != NULL)
        dtype_from_f32(dtype, values, image + GUARD_BYTES, n);
    else
        memset(image + GUARD_BYTES, 0xff, head.bytes);
    b->ops->upload(b, head.buffer.data, image, total);
    free(image);
    char *array = (char *)head.buffer.data + GUARD_BYTES;
    if (is_host_memory(b)) {
        ASAN_POISON_MEMORY_REGION(array - GUARD_BYTES, GUARD_BYTES);
        ASAN_POISON_MEMORY_REGION(array + head.bytes, GUARD_BYTES);
    }
    return array;
}

void kernel_fixture_set(struct backend *b, enum dtype dtype, void *array, const float *values,
                        size_t n) {
    void *raw = kernel_fixture_memory(dtype_row_bytes(dtype, n));
    dtype_from_f32(dtype, values, raw, n);
    b->ops->upload(b, array, raw, dtype_row_bytes(dtype, n));
    free(raw);
}

void kernel_fixture_synchronize(struct backend *b) {
    struct error err = {0};
    if (b->ops->synchronize(b, &err) != 0)
        fail_msg("%s", err.message);
}

void kernel_fixture_download(struct backend *b, void *dst, const void *src, size_t bytes) {
    b->ops->download(b, dst, src, bytes);
    kernel_fixture_synchronize(b);
}

void kernel_fixture_get(struct backend *b, enum dtype dtype, const void *array, float *out,
                        size_t n) {
    void *raw = kernel_fixture_memory(dtype_row_bytes(dtype, n));
    kernel_fixture_download(b, raw, array, dtype_row_bytes(dtype, n));
    dtype_to_f32(dtype, raw, out, n);
    free(raw);
}

void kernel_fixture_free(struct backend *b, void *array) {
    if (array == NULL)
        return;
    unsigned char before[GUARD_BYTES], after[GUARD_BYTES];
    struct array_head head;
    if (is_host_memory(b))
        ASAN_UNPOISON_MEMORY_REGION((char *)array - GUARD_BYTES, GUARD_BYTES);
    kernel_fixture_download(b, before, (char *)array - GUARD_BYTES, GUARD_BYTES);
    memcpy(&head, before, sizeof(head));
    if (is_host_memory(b))
        ASAN_UNPOISON_MEMORY_REGION((char *)array + head.bytes, GUARD_BYTES);
    kernel_fixture_download(b, after, (char *)array + head.bytes, GUARD_BYTES);
    assert_guards(before, sizeof(head), after, head.bytes);
    b->ops->buffer_free(b, &head.buffer);
}

struct matrix *kernel_fixture_matrix(struct backend *b, const struct matrix_part *parts,
                                     int num_parts, int32_t cols, enum matrix_use use) {
    struct matrix *matrix = NULL;
    struct error err = {0};
    if (b->ops->matrix_create(b, parts, num_parts, cols, use, &matrix, &err) != 0)
        fail_msg("%s", err.message);
    return matrix;
}

/* --- Runs and results --- */

/* A function of the simulator's own; NULL on other backends. */
static void *find_simulators(const struct backend *b, const char *function) {
    if (strcmp(b->name, "cuda-sim") != 0)
        return NULL;
    void *module = dlopen("libquire-cuda-sim.so", RTLD_LAZY | RTLD_NOLOAD);
    assert_non_null(module);
    void *found = dlsym(module, function);
    assert_non_null(found);
    return found;
}

typedef int (*set_order_function)(const char *spelling);

static set_order_function find_set_order(const struct backend *b) {
    return (set_order_function)find_simulators(b, "cudasim_set_order");
}

bool kernel_fixture_count_reads(const struct backend *b) {
    void (*count_reads)(void) = (void (*)(void))find_simulators(b, "cudasim_count_reads");
    if (count_reads != NULL)
        count_reads();
    return count_reads != NULL;
}

uint64_t kernel_fixture_products(const struct backend *b) {
    struct cudasim_product_calls (*count)(void) =
        (struct cudasim_product_calls(*)(void))find_simulators(b, "cudasim_count_products");
    return count != NULL ? count().products : 0;
}

uint64_t kernel_fixture_bytes_read(const struct backend *b, const char *kernel, const void *begin,
                                   size_t bytes) {
    typedef uint64_t (*bytes_read_function)(const char *kernel, const void *begin, size_t bytes);
    return ((bytes_read_function)find_simulators(b, "cudasim_bytes_read"))(kernel, begin, bytes);
}

void kernel_fixture_run(struct backend *b, void (*op)(struct backend *b, const void *args),
                        const void *args, const void *out, size_t bytes) {
    set_order_function set_order = find_set_order(b);
    const char *const orders[] = {"reverse", "random:1", "forward"};
    char *first = kernel_fixture_memory(bytes), *again = kernel_fixture_memory(bytes);
    for (int i = 0; i < (set_order != NULL ? 3 : 2); i++) {
        if (set_order != NULL)
            assert_int_equal(set_order(orders[i]), 0);
        op(b, args);
        kernel_fixture_download(b, i == 0 ? first : again, out, bytes);
        if (i > 0)
            for (size_t at = 0; at < bytes; at++)
                if (first[at] != again[at])
                    fail_msg("byte %zu of %zu is not the same in run %d (order %s)", at, bytes, i,
                             set_order != NULL ? orders[i] : "of the device");
    }
    free(again);
    free(first);
}

void kernel_fixture_assert_near(const float *actual, const float *expected, size_t n,
                                double tolerance) {
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)actual[i] - expected[i]) <= tolerance * (1 + fabs(expected[i]))))
            fail_msg("element %zu is %.9g, expected %.9g", i, actual[i], expected[i]);
}

void kernel_fixture_assert_close_by(const float *actual, const float *expected, size_t n,
                                    double tolerance, const char *what) {
    double largest = 0, norm = 0, error_norm = 0;
    for (size_t i = 0; i < n; i++) {
        largest = fmax(largest, fabs((double)expected[i]));
        norm += (double)expected[i] * expected[i];
    }
    for (size_t i = 0; i < n; i++) {
        double difference = (double)actual[i] - expected[i];
        if (!(fabs(difference) <= 8 * tolerance * largest))
            fail_msg("%s: element %zu of %zu is %.9g, expected %.9g (largest %.3g)", what, i, n,
                     actual[i], expected[i], largest);
        error_norm += difference * difference;
    }
    if (!(sqrt(error_norm) <= tolerance * sqrt(norm)))
        fail_msg("%s: off by %.3g of the norm, allowed are %.3g", what, sqrt(error_norm / norm),
                 tolerance);
}

void kernel_fixture_assert_close(const struct kernel_fixture *f, const float *actual,
                                 const float *expected, size_t n, double f32_tolerance,
                                 const char *what) {
    if (f->dtype == DTYPE_F32)
        kernel_fixture_assert_near(actual, expected, n, f32_tolerance);
    else
        kernel_fixture_assert_close_by(actual, expected, n, f->tolerance, what);
}
