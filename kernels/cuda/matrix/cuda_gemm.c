/* Which of cuBLASLt's algorithms a product of a step takes (cuda_product.h: what a product is).
 *
 * The heuristic is asked once per power of two and one and a half powers of two of M, the number of
 * rows, at the upper end; the first algorithm it names, or at start the fastest (cuda_tuning.h), is
 * kept with the shape and serves all M of the bucket, M itself being passed as it is. The library
 * may refuse an algorithm for an M it did not name it for. Then what it names for that M is tried
 * in turn, and the first that is taken is remembered for that M alone: the bucket keeps its own, so
 * that two M that refuse each other's never ask again.
 *
 * Batch invariance: every M uses one algorithm, one that sums each dot product in one sequence.
 * Split K is excluded by its reduction schemes and checked for in the result; without a workspace
 * no algorithm can pass partial sums between blocks (stream-K) either. That a given algorithm then
 * has the same order of sums for every M is what NVIDIA's kernels do, not what its documentation
 * says: check_linear compares the bits on the device itself.
 *
 * The algorithm is the first that cuBLASLt takes for every M of a step, of those it names for the
 * largest step, then for the smaller buckets. It is found when a product is first computed, which
 * is the dry run at start; steps check nothing. Tried is every M up to ALL_ROWS, twice the rows of
 * the largest tile, and beyond it both ends of each bucket: there an M differs from one that was
 * tried in the number of whole tiles alone. Should the library refuse one between them, the step
 * fails: another algorithm would give other bits. */
#include "kernels/cuda/matrix/cuda_gemm.h"

#include "kernels/cuda/matrix/cublas_check.h"
#include "kernels/cuda/matrix/cuda_product.h"
#include "kernels/cuda/matrix/cuda_tuning.h"

#include <stdlib.h>

#define NUM_KINDS 4    /* accumulate or not, float_out or not */
#define NUM_BUCKETS 61 /* of M: 1, 2, 3, 4, 6, 8, 12, ... up to 2^30 */
#define NUM_CANDIDATES 32
#define ALL_ROWS 512

/* Another algorithm for one M, which refused its bucket's. */
struct exception {
    int32_t num_rows;
    cublasLtMatmulAlgo_t algorithm;
};

/* At most one exception for each M of a bucket. */
struct choice {
    bool made;
    cublasLtMatmulAlgo_t algorithm;
    struct exception *exceptions;
    int32_t num_exceptions, max_exceptions;
};

struct gemm_shape {
    struct gemm_shape *next;
    int32_t rows, cols;
    bool biased;
    struct choice choices[NUM_KINDS][NUM_BUCKETS];
};

struct cuda_gemm {
    cublasLtHandle_t handle;
    struct buffer workspace; /* empty when batch_invariant */
    struct gemm_shape *shapes;
};

int cuda_gemm_create(struct cuda_backend *b, struct error *err) {
    b->gemm = calloc(1, sizeof(*b->gemm));
    if (b->gemm == NULL)
        return error_set(err, ERROR_MEMORY, "out of memory for the matrix products");
    int major = 0;
    if (CUBLAS_START(err, cublasLtCreate, &b->gemm->handle) != 0 ||
        CUDA_START(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, b->device),
                   err) != 0)
        return -1;
    if (b->config.batch_invariant)
        return 0;
    return cuda_buffer_alloc(&b->base, cuda_product_workspace_bytes(major), &b->gemm->workspace,
                             err);
}

static void free_shape(struct gemm_shape *shape) {
    for (int kind = 0; kind < NUM_KINDS; kind++)
        for (int bucket = 0; bucket < NUM_BUCKETS; bucket++)
            free(shape->choices[kind][bucket].exceptions);
    free(shape);
}

void cuda_gemm_destroy(struct cuda_backend *b) {
    if (b->gemm == NULL)
        return;
    for (struct gemm_shape *shape = b->gemm->shapes, *next; shape != NULL; shape = next) {
        next = shape->next;
        free_shape(shape);
    }
    cuda_buffer_free(&b->base, &b->gemm->workspace);
    if (b->gemm->handle != NULL)
        CUBLAS_RELEASE(b, cublasLtDestroy, b->gemm->handle);
    free(b->gemm);
    b->gemm = NULL;
}

struct gemm_shape *cuda_gemm_shape(struct cuda_backend *b, int32_t rows, int32_t cols, bool biased,
                                   struct error *err) {
    for (struct gemm_shape *shape = b->gemm->shapes; shape != NULL; shape = shape->next)
        if (shape->rows == rows && shape->cols == cols && shape->biased == biased)
            return shape;
    struct gemm_shape *shape = calloc(1, sizeof(*shape));
    if (shape == NULL) {
        error_set(err, ERROR_MEMORY, "out of memory for the algorithms of a matrix of %d x %d",
                  rows, cols);
        return NULL;
    }
    *shape =
        (struct gemm_shape){.next = b->gemm->shapes, .rows = rows, .cols = cols, .biased = biased};
    b->gemm->shapes = shape;
    return shape;
}

/* The smallest of 1, 2, 3, 4, 6, 8, 12, ... that is not below num_rows. */
static int bucket_of(int32_t num_rows, int32_t *out_size) {
    int bucket = 0;
    int32_t size = 1, step = 1;
    for (; size < num_rows; bucket++) {
        size += step;
        if (bucket % 2 == 0 && bucket > 0)
            step = size / 2;
    }
    *out_size = size;
    return bucket;
}

static struct cuda_product_form form_of(const struct cuda_backend *b,
                                        const struct linear_args *args) {
    const struct matrix *matrix = args->weight;
    cudaDataType_t type = cuda_is_bf16(b) ? CUDA_R_16BF : CUDA_R_16F;
    return (struct cuda_product_form){.type = type,
                                      .out_type = args->float_out ? CUDA_R_32F : type,
                                      .rows = matrix->rows,
                                      .cols = matrix->cols,
                                      .bias = args->float_out ? matrix->float_bias : matrix->bias};
}

/* Those that the mode allows, for one number of rows; 0 also after a failure. */
static int find_candidates(struct cuda_backend *b, const struct linear_args *args, int32_t num_rows,
                           cublasLtMatmulAlgo_t out[NUM_CANDIDATES]) {
    const struct cuda_product_form form = form_of(b, args);
    const struct cuda_product_limits limits = {.workspace_bytes = b->gemm->workspace.bytes,
                                               .in_sequence = b->config.batch_invariant};
    struct cuda_product product;
    int num_candidates = 0;
    if (!CUBLAS_TRY(b, cuda_product_init, &product, &form, num_rows) ||
        !CUBLAS_TRY(b, cuda_product_candidates, b->gemm->handle, &product, &limits, NUM_CANDIDATES,
                    out, &num_candidates))
        return 0;
    return num_candidates;
}

static struct cuda_product_arrays arrays_of(const struct cuda_backend *b,
                                            const struct linear_args *args) {
    return (struct cuda_product_arrays){.weights = args->weight->values,
                                        .x = args->x,
                                        .addend = args->accumulate ? args->out : NULL,
                                        .out = args->out,
                                        .scale = args->scale,
                                        .workspace = b->gemm->workspace.data,
                                        .workspace_bytes = b->gemm->workspace.bytes};
}

/* num_rows: the largest of the bucket. */
static void choose(struct cuda_backend *b, const struct linear_args *args, int32_t num_rows,
                   struct choice *choice) {
    cublasLtMatmulAlgo_t candidates[NUM_CANDIDATES];
    int num_candidates = find_candidates(b, args, num_rows, candidates);
    if (num_candidates > 0) {
        const struct cuda_tuned_product tuned = {.handle = b->gemm->handle,
                                                 .form = form_of(b, args),
                                                 .num_rows = args->num_rows,
                                                 .arrays = arrays_of(b, args)};
        choice->made = true;
        choice->algorithm = candidates[cuda_tuning_fastest(b, &tuned, candidates, num_candidates)];
    } else if (CUDA_OK(b)) {
        error_set(&b->failure, ERROR_DEVICE,
                  "cuBLASLt has no algorithm for the product of %d rows with weights of %d x %d",
                  num_rows, args->weight->rows, args->weight->cols);
    }
}

/* --- Batch invariance --- */

/* The most rows of any product. */
static int32_t most_rows(const struct cuda_backend *b) {
    const struct serving_limits *limits = &b->config.limits;
    return limits->max_num_batched_tokens > limits->max_logit_rows ? limits->max_num_batched_tokens
                                                                   : limits->max_logit_rows;
}

static int32_t next_tried(int32_t num_rows, int32_t most) {
    int32_t bucket_size = 0;
    bucket_of(num_rows, &bucket_size);
    int32_t next = num_rows < ALL_ROWS || num_rows == bucket_size ? num_rows + 1 : bucket_size;
    return next < most ? next : most;
}

/* The largest of 1, 2, 3, 4, 6, 8, 12, ... below `size`; 0 below 1. */
static int32_t smaller_bucket(int32_t size) {
    int32_t power = 1;
    while (power * 2 < size)
        power *= 2;
    if (size <= 2)
        return size - 1;
    return power + power / 2 < size ? power + power / 2 : power;
}

/* Why no algorithm serves every number of rows. */
struct refusal {
    int num_tried;
    int32_t num_rows; /* for which the last one tried was refused */
    cublasStatus_t status;
};

/* False also after a failure. */
static bool is_taken_for_all_rows(struct cuda_backend *b, const struct linear_args *args,
                                  const cublasLtMatmulAlgo_t *algorithm, struct refusal *refusal) {
    const struct cuda_product_form form = form_of(b, args);
    struct cuda_product product;
    int32_t most = most_rows(b);
    refusal->num_tried++;
    for (int32_t num_rows = 1;; num_rows = next_tried(num_rows, most)) {
        if (!CUBLAS_TRY(b, cuda_product_init, &product, &form, num_rows))
            return false;
        refusal->num_rows = num_rows;
        refusal->status = cuda_product_check(b->gemm->handle, &product, algorithm, 0);
        if (refusal->status != CUBLAS_STATUS_SUCCESS)
            return false;
        if (num_rows == most)
            return true;
    }
}

static void fail_invariant(struct cuda_backend *b, const struct linear_args *args,
                           const struct refusal *refusal) {
    const struct matrix *matrix = args->weight;
    if (!CUDA_OK(b))
        return;
    if (refusal->num_tried == 0)
        error_set(&b->failure, ERROR_DEVICE,
                  "cuBLASLt has no batch-invariant algorithm for weights of %d x %d: it names none "
                  "that sums in sequence",
                  matrix->rows, matrix->cols);
    else
        error_set(&b->failure, ERROR_DEVICE,
                  "cuBLASLt has no batch-invariant algorithm for weights of %d x %d and 1 to %d "
                  "rows: %d tried, the last refused for %d rows: %s (cublasLtMatmulAlgoCheck)",
                  matrix->rows, matrix->cols, most_rows(b), refusal->num_tried, refusal->num_rows,
                  cublasLtGetStatusName(refusal->status));
}

static void choose_invariant(struct cuda_backend *b, const struct linear_args *args,
                             struct choice *choice) {
    cublasLtMatmulAlgo_t candidates[NUM_CANDIDATES];
    struct refusal refusal = {0};
    for (int32_t rows = most_rows(b); rows > 0; rows = smaller_bucket(rows)) {
        int num_candidates = find_candidates(b, args, rows, candidates);
        for (int i = 0; i < num_candidates; i++)
            if (is_taken_for_all_rows(b, args, &candidates[i], &refusal)) {
                choice->made = true;
                choice->algorithm = candidates[i];
                return;
            }
    }
    fail_invariant(b, args, &refusal);
}

/* --- Products --- */

/* NULL after a failure. */
static struct choice *choice_for(struct cuda_backend *b, const struct linear_args *args) {
    int32_t size = 0;
    int bucket = b->config.batch_invariant ? 0 : bucket_of(args->num_rows, &size);
    int kind = (args->accumulate ? 1 : 0) + (args->float_out ? 2 : 0);
    struct choice *choice = &args->weight->shape->choices[kind][bucket];
    if (choice->made)
        return choice;
    if (b->config.batch_invariant)
        choose_invariant(b, args, choice);
    else
        choose(b, args, size, choice);
    return choice->made ? choice : NULL;
}

static struct exception *find_exception(const struct choice *choice, int32_t num_rows) {
    for (int32_t i = 0; i < choice->num_exceptions; i++)
        if (choice->exceptions[i].num_rows == num_rows)
            return &choice->exceptions[i];
    return NULL;
}

/* NULL with a failure when memory is short. */
static struct exception *add_exception(struct cuda_backend *b, struct choice *choice,
                                       int32_t num_rows) {
    if (choice->num_exceptions == choice->max_exceptions) {
        int32_t max = choice->max_exceptions == 0 ? 4 : 2 * choice->max_exceptions;
        struct exception *grown =
            realloc(choice->exceptions, (size_t)max * sizeof(*choice->exceptions));
        if (grown == NULL) {
            error_set(&b->failure, ERROR_MEMORY,
                      "out of memory for the algorithms of matrix products");
            return NULL;
        }
        choice->exceptions = grown;
        choice->max_exceptions = max;
    }
    struct exception *added = &choice->exceptions[choice->num_exceptions++];
    *added = (struct exception){.num_rows = num_rows};
    return added;
}

static cublasStatus_t multiply(struct cuda_backend *b, struct cuda_product *product,
                               const struct linear_args *args,
                               const cublasLtMatmulAlgo_t *algorithm) {
    const struct cuda_product_arrays arrays = arrays_of(b, args);
    return cuda_product_multiply(b->gemm->handle, product, algorithm, &arrays, b->stream);
}

/* Multiplies with the first algorithm that is taken for this number of rows, and remembers it. */
static cublasStatus_t multiply_otherwise(struct cuda_backend *b, struct cuda_product *product,
                                         const struct linear_args *args, struct choice *choice,
                                         struct exception *exception) {
    cublasLtMatmulAlgo_t candidates[NUM_CANDIDATES];
    int num_candidates = find_candidates(b, args, args->num_rows, candidates);
    cublasStatus_t status = CUBLAS_STATUS_NOT_SUPPORTED;
    for (int i = 0; i < num_candidates && cuda_product_is_refusal(status); i++) {
        status = multiply(b, product, args, &candidates[i]);
        if (status != CUBLAS_STATUS_SUCCESS)
            continue;
        if (exception == NULL)
            exception = add_exception(b, choice, args->num_rows);
        if (exception != NULL)
            exception->algorithm = candidates[i];
    }
    return status;
}

static void fail_refused(struct cuda_backend *b, const struct linear_args *args,
                         cublasStatus_t status) {
    error_set(&b->failure, ERROR_DEVICE,
              "%s for weights of %d x %d cannot multiply %d rows: %s (cublasLtMatmul)",
              b->config.batch_invariant ? "cuBLASLt's batch-invariant algorithm"
                                        : "every algorithm of cuBLASLt",
              args->weight->rows, args->weight->cols, args->num_rows,
              cublasLtGetStatusName(status));
}

void cuda_linear(struct backend *base, const struct linear_args *args) {
    struct cuda_backend *b = cuda_state_of(base);
    if (args->weight->values == NULL) {
        cuda_packed_linear(b, args);
        return;
    }
    const struct cuda_product_form form = form_of(b, args);
    struct cuda_product product;
    if (args->num_rows == 0 || !CUBLAS_TRY(b, cuda_product_init, &product, &form, args->num_rows))
        return;
    struct choice *choice = choice_for(b, args);
    if (choice == NULL)
        return;
    struct exception *exception = find_exception(choice, args->num_rows);
    cublasStatus_t status =
        multiply(b, &product, args, exception != NULL ? &exception->algorithm : &choice->algorithm);
    if (cuda_product_is_refusal(status) && !b->config.batch_invariant)
        status = multiply_otherwise(b, &product, args, choice, exception);
    if (cuda_product_is_refusal(status) && CUDA_OK(b))
        fail_refused(b, args, status);
    cublas_check_keep(b, status, "cublasLtMatmul", __FILE__, __LINE__);
}
