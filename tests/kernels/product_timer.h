/* Of bench_products and bench_limits: the products of one weight matrix on a GPU, random data. Its
 * algorithms are run once for their results, and timed by the device's clock.
 *
 * Timed launches are captured in a graph, so that the host's cost of each is not in the time, and
 * go through as many copies of the weights as fill more memory than caches hold. An error of the
 * device, or no memory, ends the process with a message. */
#ifndef QUIRE_TESTS_KERNELS_PRODUCT_TIMER_H
#define QUIRE_TESTS_KERNELS_PRODUCT_TIMER_H

#include "kernels/cuda/matrix/cuda_product.h"

/* Rows of a result that are looked at: the first, the last, and some between. */
#define PRODUCT_TIMER_MAX_SEEN 8

struct product_timer {
    struct cuda_product_form form;
    bool accumulate; /* out += x W^T, else out = */
    int32_t max_rows;
    int64_t launches; /* of a graph: once through all copies, but at least as many as were asked */

    /* Of the current number of rows, product_timer_set. */
    int32_t num_rows, num_seen;
    struct cuda_product product;

    /* Private to product_timer.c. */
    cublasLtHandle_t handle;
    cudaStream_t stream;
    cudaEvent_t start, end;
    uint16_t *weights_tile, *x_tile; /* host memory, repeated over the device's */
    int64_t num_copies;
    size_t copy_bytes, workspace_bytes;
    char *weights;
    void *x, *out, *workspace;
};

/* The sum over all copies of the weights is rotate_bytes at least. Out is of `form->out_type`,
 * which is `form->type` when `accumulate`. */
void product_timer_init(struct product_timer *out, const struct cuda_product_form *form,
                        bool accumulate, int32_t max_rows, size_t rotate_bytes,
                        int64_t min_launches);
void product_timer_finish(struct product_timer *timer);

/* num_rows <= max_rows. */
void product_timer_set(struct product_timer *timer, int32_t num_rows);

/* The algorithms that cuBLASLt names, as the backend asks for them; returns how many. */
int product_timer_candidates(struct product_timer *timer, int max, cublasLtMatmulAlgo_t out[]);

/* Multiplies once, and gives the rows that are looked at: seen [num_seen][form.rows]. False when
 * cuBLASLt refuses the algorithm. */
bool product_timer_multiply(struct product_timer *timer, const cublasLtMatmulAlgo_t *algorithm,
                            float *seen);

/* Returns the largest error of some elements of `seen` against sums in double on the host, in units
 * of what rounding them to the type of the result explains: above 1 is wrong. */
double product_timer_error(const struct product_timer *timer, const float *seen);

/* Captures the launches of a graph, to be destroyed by cudaGraphExecDestroy. */
cudaGraphExec_t product_timer_capture(struct product_timer *timer,
                                      const cublasLtMatmulAlgo_t *algorithm);
/* Returns the microseconds of one launch of one replay. */
double product_timer_replay(struct product_timer *timer, cudaGraphExec_t graph);

/* Bounds how far two right results are apart, by the norm of either. */
double product_timer_tolerance(const struct product_timer *timer);

/* Returns the major compute capability of the GPU; ends the process with status 77 when there is
 * none. */
int product_timer_find_device(void);
/* Ends the process with the call and the reason unless it succeeded. */
void product_timer_check(cudaError_t status, const char *call);
_Noreturn void product_timer_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
