/* What the checks of the ops share: the backends under test beside the oracle, random numbers, and
 * arrays with guards around them. */
#ifndef QUIRE_TESTS_KERNELS_KERNEL_FIXTURE_H
#define QUIRE_TESTS_KERNELS_KERNEL_FIXTURE_H

#include "kernels/backend.h"

#include <stddef.h>
#include <stdint.h>

#define FIXTURE_MAX_BACKENDS 9

/* Every instruction-set level this machine has, each with 1, 2 and 3 threads. */
struct kernel_fixture {
    struct backend *oracle;
    struct backend *backends[FIXTURE_MAX_BACKENDS];
    int num_backends;
};

/* cmocka group set-up and tear-down; *state is the fixture. */
int kernel_fixture_setup(void **state);
int kernel_fixture_teardown(void **state);

uint32_t kernel_fixture_random(uint64_t *seed);
int kernel_fixture_random_in(uint64_t *seed, int low, int high);
float kernel_fixture_uniform(uint64_t *seed); /* in [-1, 1) */
float kernel_fixture_normal(uint64_t *seed);

/* n floats between two guards, filled with a NaN; freed with kernel_fixture_guarded_free, which
 * fails the test if a guard was written to. */
float *kernel_fixture_guarded(size_t n);
void kernel_fixture_guarded_free(float *data);

float *kernel_fixture_random_floats(uint64_t *seed, size_t n); /* free() */

/* Fails unless every |actual - expected| <= tolerance * (1 + |expected|). */
void kernel_fixture_assert_near(const float *actual, const float *expected, size_t n,
                                double tolerance);

#endif
