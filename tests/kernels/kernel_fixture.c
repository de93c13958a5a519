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

void kernel_fixture_assert_near(const float *actual, const float *expected, size_t n,
                                double tolerance) {
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)actual[i] - expected[i]) <= tolerance * (1 + fabs(expected[i]))))
            fail_msg("element %zu is %.9g, expected %.9g", i, actual[i], expected[i]);
}
