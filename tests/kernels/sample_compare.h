/* Runs calls of the sample op on the backends of a fixture, and compares what comes back with the
 * oracle's. */
#ifndef QUIRE_TESTS_KERNELS_SAMPLE_COMPARE_H
#define QUIRE_TESTS_KERNELS_SAMPLE_COMPARE_H

#include "tests/kernels/kernel_fixture.h"
#include "tests/kernels/sample_fixture.h"

struct sample_compare {
    const struct kernel_fixture *fixture;
    int32_t max_vocab; /* that the backends have room for */
};

/* Each run has another padding, up to what the backends have room for. A device's outputs hold
 * zeros where nothing was requested, so that they can be compared as bytes. */
void sample_compare_run(const struct sample_compare *c, struct backend *b,
                        const struct sample_call *call, struct sample_output *out);
/* listed_logprobs: NULL where no row lists any. */
void sample_compare_run_listed(const struct sample_compare *c, struct backend *b,
                               const struct sample_call *call, struct sample_output *out,
                               float *listed_logprobs);

/* Leaves zeros in outputs where nothing was requested. */
void sample_compare_keep_meaningful(const struct sample_call *call, struct sample_output *outputs);

/* Compares every backend with the oracle, and all of them with the first by bytes, in every order
 * of threads; leaves the first's results in `out`. Returns how many tokens are only nearly the
 * oracle's. */
int sample_compare_check(const struct sample_compare *c, const struct sample_call *call,
                         struct sample_output *out);

/* In batches of so many rows, each row has the bits that the first backend gave it together with
 * all of the call's. */
void sample_compare_check_batches(const struct sample_compare *c, const struct sample_call *call,
                                  int32_t batch, const struct sample_output *together);

/* A row of random parameters, bounds among them; its edits are a slice of the call's arrays. */
struct sample_row sample_compare_random_row(uint64_t *seed, int32_t vocab_size, int32_t num_edits);
/* Returns whether llama.cpp's steps were drawn for it too. */
bool sample_compare_has_steps(const struct sample_row *row);

#endif
