#include "tests/kernels/device_fixture.h"

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

/* At the start of the first guard, for _free. */
struct array_head {
    struct buffer buffer;
    size_t bytes;
};

static void fail_arguments(const char *program) {
    fprintf(stderr, "usage: %s cuda|cuda-sim bf16|f16 [batch-invariant]\n", program);
    exit(EXIT_WRONG_ARGUMENTS);
}

static void read_arguments(struct device_fixture *f, int argc, char **argv) {
    if (argc < 3 || argc > 4 || (argc == 4 && strcmp(argv[3], "batch-invariant") != 0))
        fail_arguments(argv[0]);
    f->batch_invariant = argc == 4;
    f->dtype = strcmp(argv[2], "bf16") == 0 ? DTYPE_BF16 : DTYPE_F16;
    if (strcmp(argv[2], dtype_name(f->dtype)) != 0)
        fail_arguments(argv[0]);
    f->tolerance = f->dtype == DTYPE_BF16 ? 0x1p-8 : 0x1p-11;
}

/* The simulator needs nothing that could be missing, so it is never skipped. */
void device_fixture_open(struct device_fixture *f, int argc, char **argv,
                         const struct backend_config *config) {
    *f = (struct device_fixture){0};
    read_arguments(f, argc, argv);
    struct backend_config device_config = *config, oracle_config = *config;
    device_config.activation_dtype = f->dtype;
    device_config.batch_invariant = f->batch_invariant;
    struct error err = {0};
    f->device = backend_open(argv[1], &device_config, &err);
    if (f->device == NULL) {
        fprintf(stderr, "%s: %s\n", argv[1], err.message);
        exit(strcmp(argv[1], "cuda") == 0 ? EXIT_SKIPPED : EXIT_FAILURE);
    }
    printf("%s: %s\n", f->device->name, f->device->description);
    f->oracle = backend_open("cpu-ref", &oracle_config, &err);
    if (f->oracle == NULL) {
        fprintf(stderr, "cpu-ref: %s\n", err.message);
        exit(EXIT_FAILURE);
    }
}

void device_fixture_close(struct device_fixture *f) {
    backend_close(f->oracle);
    backend_close(f->device);
}

static void round_through(enum dtype dtype, float *values, size_t n) {
    uint16_t *narrow = malloc(n * sizeof(*narrow));
    assert_non_null(narrow);
    dtype_from_f32(dtype, values, narrow, n);
    dtype_to_f32(dtype, narrow, values, n);
    free(narrow);
}

void device_fixture_round(const struct device_fixture *f, float *values, size_t n) {
    round_through(f->dtype, values, n);
}

void *device_fixture_put(struct device_fixture *f, enum dtype dtype, const float *values,
                         size_t n) {
    struct array_head head = {.bytes = dtype_row_bytes(dtype, n)};
    size_t total = head.bytes + 2 * GUARD_BYTES;
    struct error err = {0};
    if (f->device->ops->buffer_alloc(f->device, total, &head.buffer, &err) != 0)
        fail_msg("%s", err.message);
    unsigned char *image = malloc(total);
    assert_non_null(image);
    memset(image, GUARD_BYTE, total);
    memcpy(image, &head, sizeof(head));
    if (values != NULL)
        dtype_from_f32(dtype, values, image + GUARD_BYTES, n);
    else
        memset(image + GUARD_BYTES, 0xff, head.bytes);
    f->device->ops->upload(f->device, head.buffer.data, image, total);
    free(image);
    return (char *)head.buffer.data + GUARD_BYTES;
}

static void download(struct device_fixture *f, void *dst, const void *src, size_t bytes) {
    f->device->ops->download(f->device, dst, src, bytes);
    struct error err = {0};
    if (f->device->ops->synchronize(f->device, &err) != 0)
        fail_msg("%s", err.message);
}

void device_fixture_get(struct device_fixture *f, enum dtype dtype, const void *array, float *out,
                        size_t n) {
    void *raw = malloc(dtype_row_bytes(dtype, n));
    assert_non_null(raw);
    download(f, raw, array, dtype_row_bytes(dtype, n));
    dtype_to_f32(dtype, raw, out, n);
    free(raw);
}

void device_fixture_free(struct device_fixture *f, void *array) {
    if (array == NULL)
        return;
    unsigned char before[GUARD_BYTES], after[GUARD_BYTES];
    download(f, before, (char *)array - GUARD_BYTES, GUARD_BYTES);
    struct array_head head;
    memcpy(&head, before, sizeof(head));
    for (size_t i = sizeof(head); i < GUARD_BYTES; i++)
        if (before[i] != GUARD_BYTE)
            fail_msg("byte %zu before an array was written to", GUARD_BYTES - i);
    download(f, after, (char *)array + head.bytes, GUARD_BYTES);
    for (size_t i = 0; i < GUARD_BYTES; i++)
        if (after[i] != GUARD_BYTE)
            fail_msg("byte %zu past an array of %zu bytes was written to", i, head.bytes);
    f->device->ops->buffer_free(f->device, &head.buffer);
}

typedef int (*set_order_function)(const char *spelling);

/* The simulator's own function; NULL on a card. */
static set_order_function find_set_order(const struct device_fixture *f) {
    if (strcmp(f->device->name, "cuda-sim") != 0)
        return NULL;
    void *module = dlopen("libquire-cuda-sim.so", RTLD_LAZY | RTLD_NOLOAD);
    assert_non_null(module);
    set_order_function set_order = (set_order_function)dlsym(module, "cudasim_set_order");
    assert_true(set_order != NULL);
    return set_order;
}

void device_fixture_run(struct device_fixture *f,
                        void (*op)(struct device_fixture *f, const void *args), const void *args,
                        const void *out, size_t bytes) {
    set_order_function set_order = find_set_order(f);
    const char *const orders[] = {"reverse", "random:1", "forward"};
    char *first = malloc(bytes), *again = malloc(bytes);
    assert_true(first != NULL && again != NULL);
    for (int i = 0; i < (set_order != NULL ? 3 : 2); i++) {
        if (set_order != NULL)
            assert_int_equal(set_order(orders[i]), 0);
        op(f, args);
        download(f, i == 0 ? first : again, out, bytes);
        if (i > 0)
            for (size_t at = 0; at < bytes; at++)
                if (first[at] != again[at])
                    fail_msg("byte %zu of %zu is not the same in run %d (order %s)", at, bytes, i,
                             set_order != NULL ? orders[i] : "of the card");
    }
    free(again);
    free(first);
}

void device_fixture_assert_close(const float *actual, const float *expected, size_t n,
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
