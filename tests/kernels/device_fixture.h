/* What the checks of a device's ops share. Each check is a program `check_device_OP DEVICE DTYPE
 * [batch-invariant]`: the ops of DEVICE ("cuda", "cuda-sim") with activations of DTYPE ("bf16",
 * "f16") against the oracle in float, on the same numbers, rounded to DTYPE before. The device's
 * arrays have guards around them; its memory is reached by upload and download only. */
#ifndef QUIRE_TESTS_KERNELS_DEVICE_FIXTURE_H
#define QUIRE_TESTS_KERNELS_DEVICE_FIXTURE_H

#include "kernels/backend.h"
#include "tests/kernels/kernel_fixture.h"

struct device_fixture {
    struct backend *device;
    struct backend *oracle;
    enum dtype dtype;     /* of activations, weights and the KV cache */
    bool batch_invariant; /* opened so: bits are compared then */
    double tolerance;     /* of one rounding to dtype: 2^-8 for bf16, 2^-11 for f16 */
};

/* Reads the program's arguments; `config` gives the sizes, the rest is filled in from them. Ends
 * the program with status 77 (skip) when the device is not there, 2 on wrong arguments. */
void device_fixture_open(struct device_fixture *f, int argc, char **argv,
                         const struct backend_config *config);
void device_fixture_close(struct device_fixture *f);

/* Rounds to f->dtype, in place: what both sides then compute with. */
void device_fixture_round(const struct device_fixture *f, float *values, size_t n);

/* A guarded array of n elements of dtype on the device, holding `values`, or NaN bytes (0xff) when
 * NULL. _get converts back to float. _free fails the test if a guard was written to. */
void *device_fixture_put(struct device_fixture *f, enum dtype dtype, const float *values, size_t n);
void device_fixture_get(struct device_fixture *f, enum dtype dtype, const void *array, float *out,
                        size_t n);
void device_fixture_free(struct device_fixture *f, void *array);

/* Calls op(f, args), several times where that can show a race: on the simulator under each of three
 * orders of threads, on a card twice. Fails unless `out` holds the same `bytes` each time. An op
 * that changes its input, puts it back first. */
void device_fixture_run(struct device_fixture *f,
                        void (*op)(struct device_fixture *f, const void *args), const void *args,
                        const void *out, size_t bytes);

/* Fails unless ||actual - expected|| <= tolerance * ||expected|| and every single |difference| <=
 * 8 * tolerance * (largest |expected|); a NaN fails. */
void device_fixture_assert_close(const float *actual, const float *expected, size_t n,
                                 double tolerance, const char *what);

#endif
