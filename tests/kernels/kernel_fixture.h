/* What the checks of the ops share. Each check is a program `check_OP [cpu]`, which runs on every
 * instruction-set level that this machine has, with 1, 2 and 3 threads, under sanitizers with 1 and
 * 3 (those that bring formats of the matrix product alone: with 2), or `check_OP DEVICE TYPE
 * [batch-invariant] [fp8-activations]`, which runs on one device ("cuda", "cuda-sim") with
 * activations of TYPE ("bf16", "f16"). `all-multiprocessors` instead of these words takes the
 * check's own limit of them away: a planted fault where there are many. Both compare each backend
 * with the oracle, on the same numbers, rounded to the backend's type before. A backend's memory is
 * reached by upload and download only, and its arrays have guards around them. */
#ifndef QUIRE_TESTS_KERNELS_KERNEL_FIXTURE_H
#define QUIRE_TESTS_KERNELS_KERNEL_FIXTURE_H

#include "kernels/backend.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FIXTURE_MAX_BACKENDS 16

struct kernel_fixture {
    struct backend *oracle;
    struct backend *backends[FIXTURE_MAX_BACKENDS]; /* under test */
    int num_backends;
    enum dtype dtype; /* of activations, and of a device's weights and KV cache; F32 on the CPU */
    double tolerance; /* of one rounding to dtype: 2^-8 for BF16, 2^-11 for F16, 2^-24 for F32 */
    bool bits_equal; /* rows have the same bits on each of the backends, alone and in any batch; but
                          see kernel_fixture_bf16_products */
    bool fp8_activations; /* of products with weights of E4M3, none of which is then a NaN */
    bool is_simulated;    /* takes its time */
};

/* Reads the program's arguments; `config` gives the sizes, the rest is filled in from them. Ends
 * the program with status 77 (skip) when the device is not there, 2 on wrong arguments. */
void kernel_fixture_open(struct kernel_fixture *f, int argc, char **argv,
                         const struct backend_config *config);
void kernel_fixture_close(struct kernel_fixture *f);

/* What sets the bits of products with BF16 or FP8 weights apart from the common ones
 * (cpu_gemm_format.h): their activations are rounded to BF16. Empty: nothing. */
const char *kernel_fixture_bf16_products(const struct backend *b, enum dtype weights);

/* By which instruction the backend rounds queries and weights in attention with a cache of that
 * type: "vdpbf16ps" (kernels/cpu/levels/ops/cpu_attention_pairs_template.h), "vpdpwssd"
 * (cpu_attention_fixed_template.h), both at the beginning; "": the common bits. */
const char *kernel_fixture_attention(const struct backend *b, enum kv_type type);

/* Whether backend i has another instruction-set level than the one before it; else it is the same
 * with more threads. */
bool kernel_fixture_is_new_level(const struct kernel_fixture *f, int i);

uint32_t kernel_fixture_random(uint64_t *seed);
int kernel_fixture_random_in(uint64_t *seed, int low, int high);
float kernel_fixture_uniform(uint64_t *seed); /* in [-1, 1) */
float kernel_fixture_normal(uint64_t *seed);
float *kernel_fixture_random_floats(uint64_t *seed, size_t n); /* free() */
/* Random numbers that the backends can hold. free() */
float *kernel_fixture_rounded_floats(const struct kernel_fixture *f, uint64_t *seed, size_t n);
/* Rounds to f->dtype, in place. */
void kernel_fixture_round(const struct kernel_fixture *f, float *values, size_t n);
/* malloc() that fails the test instead of returning NULL. */
void *kernel_fixture_memory(size_t bytes);

/* n floats of host memory between two guards, filled with a NaN; freed with
 * kernel_fixture_guarded_free, which fails the test if a guard was written to. */
float *kernel_fixture_guarded(size_t n);
void kernel_fixture_guarded_free(float *data);

/* A guarded array of n elements of dtype in the memory of `b`, holding `values`, or NaN bytes
 * (0xff) when NULL. _set overwrites it, _get converts back to float. _free fails the test if a
 * guard was written to, and accepts NULL. */
void *kernel_fixture_put(struct backend *b, enum dtype dtype, const float *values, size_t n);
void kernel_fixture_set(struct backend *b, enum dtype dtype, void *array, const float *values,
                        size_t n);
void kernel_fixture_get(struct backend *b, enum dtype dtype, const void *array, float *out,
                        size_t n);
void kernel_fixture_free(struct backend *b, void *array);
void kernel_fixture_download(struct backend *b, void *dst, const void *src, size_t bytes);
void kernel_fixture_synchronize(struct backend *b);

struct matrix *kernel_fixture_matrix(struct backend *b, const struct matrix_part *parts,
                                     int num_parts, int32_t cols, enum matrix_use use);

/* Calls op(b, args), several times where that can show a race: on the simulator under each of three
 * orders of threads, else twice. Fails unless `out` holds the same `bytes` each time. An op that
 * changes its input, puts it back first. */
void kernel_fixture_run(struct backend *b, void (*op)(struct backend *b, const void *args),
                        const void *args, const void *out, size_t bytes);

/* Counts what kernels read from here on, on the simulator
 * (kernels/cudasim/include/cudasim/reads.h); elsewhere returns false. */
bool kernel_fixture_count_reads(const struct backend *b);
/* Then, after a wait: stops, and returns the bytes that kernels whose name holds the text read of
 * that memory; begin NULL: of weights. */
uint64_t kernel_fixture_bytes_read(const struct backend *b, const char *kernel, const void *begin,
                                   size_t bytes);

/* Products of cuBLASLt since the start, on the simulator; elsewhere 0. */
uint64_t kernel_fixture_products(const struct backend *b);

/* Fails unless every |actual - expected| <= tolerance * (1 + |expected|). */
void kernel_fixture_assert_near(const float *actual, const float *expected, size_t n,
                                double tolerance);
/* Results in f->dtype. F32: as assert_near with this tolerance. Else fails unless ||actual -
 * expected|| <= f->tolerance * ||expected|| and every single |difference| <= 8 * f->tolerance *
 * (largest |expected|). A NaN fails. */
void kernel_fixture_assert_close(const struct kernel_fixture *f, const float *actual,
                                 const float *expected, size_t n, double f32_tolerance,
                                 const char *what);
/* The second of these two, with a tolerance of the caller's. */
void kernel_fixture_assert_close_by(const float *actual, const float *expected, size_t n,
                                    double tolerance, const char *what);

#endif
