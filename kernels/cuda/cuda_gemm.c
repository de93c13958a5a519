/* out = x W^T with cuBLASLt. Its matrices are column major, so a row-major matrix is its own
 * transpose to it, and the call is
 *
 *   out^T [N, M] = op_T(W^T [K, N]) x^T [K, M]     M rows of x, W [N, K]; ld: K, K, N
 *
 * in float, with the scale as alpha, the residual as beta = 1 in place and the bias in the
 * epilogue.
 *
 * The algorithm is the first one the heuristic names for a shape, called once per power of two and
 * one and a half powers of two of M, at the upper end, and kept with the shape; M itself is passed
 * as it is. The library may refuse an algorithm for an M it did not name it for; then the one it
 * names for that M takes its place. Parts of K may be summed apart, in float only: reductions in
 * the output's 16 bits are excluded. Descriptors are initialised on the stack, which takes no
 * allocation.
 *
 * Batch invariance: every M uses the algorithm chosen for the largest step, one that sums each dot
 * product in one sequence. Split K is excluded by its reduction schemes and checked for in the
 * result; without a workspace no algorithm can pass partial sums between blocks (stream-K) either.
 * When cuBLASLt does not take that algorithm for some M, that is a failure: another one would give
 * other bits.
 *
 * Workspace: what NVIDIA recommends, 32 MiB from sm_90 on and 4 MiB before (cuBLAS documentation,
 * cublasSetWorkspace). */
#include "kernels/cuda/cuda_gemm.h"

#include "config/base/check.h"
#include "kernels/cuda/cublas_check.h"

#include <stdlib.h>

#define WORKSPACE_BYTES_SM90 ((size_t)32 << 20)
#define WORKSPACE_BYTES_SM80 ((size_t)4 << 20)
#define NUM_KINDS 4    /* accumulate or not, float_out or not */
#define NUM_BUCKETS 61 /* of M: 1, 2, 3, 4, 6, 8, 12, ... up to 2^30 */
#define NUM_CANDIDATES 16
#define ALIGNMENT                                                                                  \
    16 /* of x and out, in bytes; the allocator's is larger, rows of x are a multiple */

struct choice {
    bool made;
    cublasLtMatmulAlgo_t algorithm;
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
        CUDA_START(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0), err) != 0)
        return -1;
    if (b->config.batch_invariant)
        return 0;
    return cuda_buffer_alloc(&b->base, major >= 9 ? WORKSPACE_BYTES_SM90 : WORKSPACE_BYTES_SM80,
                             &b->gemm->workspace, err);
}

void cuda_gemm_destroy(struct cuda_backend *b) {
    if (b->gemm == NULL)
        return;
    for (struct gemm_shape *shape = b->gemm->shapes, *next; shape != NULL; shape = next) {
        next = shape->next;
        free(shape);
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

/* One product as cuBLASLt sees it. */
struct product {
    cublasLtMatmulDescOpaque_t operation;
    cublasLtMatrixLayoutOpaque_t weights, x, out;
};

static bool set_operation(struct cuda_backend *b, cublasLtMatmulDesc_t operation,
                          cublasLtMatmulDescAttributes_t attribute, const void *value,
                          size_t bytes) {
    return CUBLAS_TRY(b, cublasLtMatmulDescSetAttribute, operation, attribute, value, bytes);
}

static bool init_operation(struct cuda_backend *b, cublasLtMatmulDesc_t operation,
                           const struct matrix *matrix, bool float_out) {
    int32_t transpose = CUBLAS_OP_T;
    if (!CUBLAS_TRY(b, cublasLtMatmulDescInit, operation, CUBLAS_COMPUTE_32F, CUDA_R_32F) ||
        !set_operation(b, operation, CUBLASLT_MATMUL_DESC_TRANSA, &transpose, sizeof(transpose)))
        return false;
    if (matrix->bias == NULL)
        return true;
    uint32_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    const void *bias = float_out ? matrix->float_bias : matrix->bias;
    return set_operation(b, operation, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                         sizeof(epilogue)) &&
           set_operation(b, operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof(bias));
}

static bool init_product(struct cuda_backend *b, struct product *product,
                         const struct linear_args *args, int32_t num_rows) {
    const struct matrix *matrix = args->weight;
    cudaDataType_t type = b->base.activation_dtype == DTYPE_BF16 ? CUDA_R_16BF : CUDA_R_16F;
    cudaDataType_t out_type = args->float_out ? CUDA_R_32F : type;
    uint64_t n = (uint64_t)matrix->rows, k = (uint64_t)matrix->cols, m = (uint64_t)num_rows;
    return init_operation(b, &product->operation, matrix, args->float_out) &&
           CUBLAS_TRY(b, cublasLtMatrixLayoutInit, &product->weights, type, k, n, (int64_t)k) &&
           CUBLAS_TRY(b, cublasLtMatrixLayoutInit, &product->x, type, k, m, (int64_t)k) &&
           CUBLAS_TRY(b, cublasLtMatrixLayoutInit, &product->out, out_type, n, m, (int64_t)n);
}

static bool prefer(struct cuda_backend *b, cublasLtMatmulPreference_t preference,
                   cublasLtMatmulPreferenceAttributes_t attribute, uint32_t value) {
    return CUBLAS_TRY(b, cublasLtMatmulPreferenceSetAttribute, preference, attribute, &value,
                      sizeof(value));
}

static bool init_preference(struct cuda_backend *b, cublasLtMatmulPreference_t preference) {
    uint64_t workspace_bytes = b->gemm->workspace.bytes;
    uint32_t reductions = b->config.batch_invariant ? CUBLASLT_REDUCTION_SCHEME_NONE
                                                    : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    return CUBLAS_TRY(b, cublasLtMatmulPreferenceInit, preference) &&
           CUBLAS_TRY(b, cublasLtMatmulPreferenceSetAttribute, preference,
                      CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace_bytes,
                      sizeof(workspace_bytes)) &&
           prefer(b, preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions) &&
           prefer(b, preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, ALIGNMENT) &&
           prefer(b, preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, ALIGNMENT) &&
           prefer(b, preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, ALIGNMENT) &&
           prefer(b, preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, ALIGNMENT);
}

/* Returns whether each dot product is summed in one sequence; false also after a failure. */
static bool sums_in_sequence(struct cuda_backend *b, const cublasLtMatmulAlgo_t *algorithm) {
    int32_t splits;
    uint32_t reduction;
    return CUBLAS_TRY(b, cublasLtMatmulAlgoConfigGetAttribute, algorithm,
                      CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &splits, sizeof(splits), NULL) &&
           CUBLAS_TRY(b, cublasLtMatmulAlgoConfigGetAttribute, algorithm,
                      CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &reduction, sizeof(reduction), NULL) &&
           splits <= 1 && reduction == CUBLASLT_REDUCTION_SCHEME_NONE;
}

static bool may_use(struct cuda_backend *b, const cublasLtMatmulHeuristicResult_t *candidate) {
    if (candidate->state != CUBLAS_STATUS_SUCCESS ||
        candidate->workspaceSize > b->gemm->workspace.bytes)
        return false;
    return !b->config.batch_invariant || sums_in_sequence(b, &candidate->algo);
}

static void choose(struct cuda_backend *b, const struct linear_args *args, int32_t num_rows,
                   struct choice *out) {
    struct product product;
    cublasLtMatmulPreferenceOpaque_t preference;
    cublasLtMatmulHeuristicResult_t candidates[NUM_CANDIDATES];
    int num_candidates = 0;
    if (!init_product(b, &product, args, num_rows) || !init_preference(b, &preference) ||
        !CUBLAS_TRY(b, cublasLtMatmulAlgoGetHeuristic, b->gemm->handle, &product.operation,
                    &product.weights, &product.x, &product.out, &product.out, &preference,
                    NUM_CANDIDATES, candidates, &num_candidates))
        return;
    for (int i = 0; i < num_candidates; i++)
        if (may_use(b, &candidates[i])) {
            *out = (struct choice){.made = true, .algorithm = candidates[i].algo};
            return;
        }
    if (CUDA_OK(b))
        error_set(&b->failure, ERROR_DEVICE,
                  "cuBLASLt has no %salgorithm for the product of %d rows with weights of %d x %d",
                  b->config.batch_invariant ? "batch-invariant " : "", num_rows, args->weight->rows,
                  args->weight->cols);
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

/* NULL after a failure. */
static struct choice *choice_for(struct cuda_backend *b, const struct linear_args *args) {
    int32_t size = b->config.limits.max_num_batched_tokens;
    int bucket = b->config.batch_invariant ? 0 : bucket_of(args->num_rows, &size);
    int kind = (args->accumulate ? 1 : 0) + (args->float_out ? 2 : 0);
    struct choice *choice = &args->weight->shape->choices[kind][bucket];
    if (!choice->made)
        choose(b, args, size, choice);
    return choice->made ? choice : NULL;
}

/* For this very number of rows. */
static bool is_taken(struct cuda_backend *b, struct product *product,
                     const struct linear_args *args, const cublasLtMatmulAlgo_t *algorithm) {
    cublasLtMatmulHeuristicResult_t result;
    cublasStatus_t status =
        cublasLtMatmulAlgoCheck(b->gemm->handle, &product->operation, &product->weights,
                                &product->x, &product->out, &product->out, algorithm, &result);
    if (status == CUBLAS_STATUS_SUCCESS && result.workspaceSize == 0)
        return true;
    error_set(&b->failure, ERROR_DEVICE,
              "the batch-invariant algorithm for weights of %d x %d cannot multiply %d rows: %s "
              "(cublasLtMatmulAlgoCheck)",
              args->weight->rows, args->weight->cols, args->num_rows,
              cublasLtGetStatusName(status));
    return false;
}

static cublasStatus_t multiply(struct cuda_backend *b, struct product *product,
                               const struct linear_args *args,
                               const cublasLtMatmulAlgo_t *algorithm) {
    float alpha = args->scale, beta = args->accumulate ? 1.0F : 0.0F;
    return cublasLtMatmul(b->gemm->handle, &product->operation, &alpha, args->weight->values,
                          &product->weights, args->x, &product->x, &beta, args->out, &product->out,
                          args->out, &product->out, algorithm, b->gemm->workspace.data,
                          b->gemm->workspace.bytes, b->stream);
}

/* Nothing was enqueued then. */
static bool is_refusal(cublasStatus_t status) {
    return status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE;
}

void cuda_linear(struct backend *base, const struct linear_args *args) {
    struct cuda_backend *b = (struct cuda_backend *)base;
    struct product product;
    if (args->num_rows == 0 || !init_product(b, &product, args, args->num_rows))
        return;
    struct choice *choice = choice_for(b, args);
    if (choice == NULL ||
        (b->config.batch_invariant && !is_taken(b, &product, args, &choice->algorithm)))
        return;
    cublasStatus_t status = multiply(b, &product, args, &choice->algorithm);
    if (is_refusal(status) && !b->config.batch_invariant) {
        choice->made = false;
        choose(b, args, args->num_rows, choice);
        if (!choice->made)
            return;
        status = multiply(b, &product, args, &choice->algorithm);
    }
    cublas_check_keep(b, status, "cublasLtMatmul", __FILE__, __LINE__);
}
