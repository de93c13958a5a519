#include "tests/kernels/kernel_fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define GUARD 64 /* floats */
#define GUARD_BYTE 0xa5

int kernel_fixture_setup(void **state) {
    static const char *const levels[] = {"portable", "avx2", "avx512vnni"};
    struct kernel_fixture *f = calloc(1, sizeof(*f));
    assert_non_null(f);
    struct backend_config config = {.max_step_tokens = 256, .max_step_seqs = 64};
    f->oracle = backend_open("cpu-ref", &config, NULL);
    assert_non_null(f->oracle);
    for (int i = 0; i < 3; i++)
        for (int threads = 1; threads <= 3; threads++) {
            config.isa = levels[i];
            config.num_threads = threads;
            struct backend *b = backend_open("cpu", &config, NULL);
            if (b)
                f->backends[f->num_backends++] = b;
        }
    assert_true(f->num_backends >= 3);
    *state = f;
    return 0;
}

int kernel_fixture_teardown(void **state) {
    struct kernel_fixture *f = *state;
    for (int i = 0; i < f->num_backends; i++)
        backend_close(f->backends[i]);
    backend_close(f->oracle);
    free(f);
    return 0;
}

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

/* The first guard begins with the length. */
float *kernel_fixture_guarded(size_t n) {
    float *memory = malloc((n + 2 * GUARD) * sizeof(float));
    assert_non_null(memory);
    memset(memory, GUARD_BYTE, (n + 2 * GUARD) * sizeof(float));
    memcpy(memory, &n, sizeof(n));
    for (size_t i = 0; i < n; i++)
        memory[GUARD + i] = NAN;
    return memory + GUARD;
}

void kernel_fixture_guarded_free(float *data) {
    size_t n;
    memcpy(&n, data - GUARD, sizeof(n));
    const unsigned char *before = (const unsigned char *)(data - GUARD) + sizeof(n);
    for (; before < (const unsigned char *)data; before++)
        assert_int_equal(*before, GUARD_BYTE);
    const unsigned char *after = (const unsigned char *)(data + n);
    for (size_t i = 0; i < GUARD * sizeof(float); i++)
        assert_int_equal(after[i], GUARD_BYTE);
    free(data - GUARD);
}

float *kernel_fixture_random_floats(uint64_t *seed, size_t n) {
    float *data = malloc(n * sizeof(float));
    assert_non_null(data);
    for (size_t i = 0; i < n; i++)
        data[i] = kernel_fixture_normal(seed);
    return data;
}

/* Where a block has its f16 factors, -1: no second one; and what they are to be about. */
static const struct {
    int d, m;
    float size;
} block_factors[DTYPE_COUNT] = {
    [DTYPE_Q4_0] = {0, -1, 0.1f},      [DTYPE_Q4_1] = {0, 2, 0.05f},
    [DTYPE_Q8_0] = {0, -1, 0.008f},    [DTYPE_Q5_0] = {0, -1, 0.06f},
    [DTYPE_Q5_1] = {0, 2, 0.03f},      [DTYPE_IQ4_NL] = {0, -1, 0.008f},
    [DTYPE_Q2_K] = {80, 82, 0.02f},    [DTYPE_Q3_K] = {108, -1, 0.008f},
    [DTYPE_Q4_K] = {0, 2, 1e-3f},      [DTYPE_Q5_K] = {0, 2, 5e-4f},
    [DTYPE_Q6_K] = {208, -1, 2.5e-4f},
};

static void put_factor(uint64_t *seed, uint8_t *dst, float size) {
    uint16_t bits = f16_from_f32(size * (1.25f + kernel_fixture_uniform(seed)));
    memcpy(dst, &bits, sizeof(bits));
}

static void random_block(uint64_t *seed, enum dtype dtype, uint8_t *dst) {
    for (size_t i = 0; i < dtype_block_bytes(dtype); i++)
        dst[i] = (uint8_t)kernel_fixture_random(seed);
    put_factor(seed, dst + block_factors[dtype].d, block_factors[dtype].size);
    if (block_factors[dtype].m >= 0)
        put_factor(seed, dst + block_factors[dtype].m, -block_factors[dtype].size);
}

void kernel_fixture_random_weights(uint64_t *seed, enum dtype dtype, void *out, size_t n) {
    uint8_t *dst = out;
    for (size_t i = 0; i < n; i += (size_t)dtype_block_elements(dtype)) {
        float value = kernel_fixture_uniform(seed);
        if (dtype_is_quantised(dtype))
            random_block(seed, dtype, dst);
        else
            dtype_from_f32(dtype, &value, dst, 1);
        dst += dtype_block_bytes(dtype);
    }
}

enum dtype kernel_fixture_random_dtype(uint64_t *seed, int32_t cols) {
    for (;;) {
        enum dtype dtype = (enum dtype)kernel_fixture_random_in(seed, 0, DTYPE_COUNT - 1);
        if (cols % dtype_block_elements(dtype) == 0)
            return dtype;
    }
}

void kernel_fixture_assert_near(const float *actual, const float *expected, size_t n,
                                double tolerance) {
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)actual[i] - expected[i]) <= tolerance * (1 + fabs(expected[i]))))
            fail_msg("element %zu is %.9g, expected %.9g", i, actual[i], expected[i]);
}
