/* The part of cuBLASLt that the CUDA backend uses, simulated: NVIDIA's names, signatures and values
 * (cublasLt.h of CUDA 13.0). Descriptors are kept in the caller's memory, as NVIDIA's *Init
 * functions do.
 *
 * Checked as strictly as on a GPU, or stricter: descriptors that were never initialised or do not
 * fit together, leading dimensions, attribute sizes, types that no algorithm takes, an algorithm
 * made for another kind of product, workspaces and pointers that are too small or not aligned as
 * the algorithm was promised. A product is queued on its stream like a kernel.
 *
 * Products of E4M3 are refused but as a GPU of compute capability 9.0 takes them: A transposed
 * and B not, all dimensions that are contiguous of 16 bytes, with a scale for each row of A and
 * column of B (CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F), or with none. Without
 * CUBLASLT_MATMUL_DESC_FAST_ACCUM, which is not here, sums of 128 products are added in float.
 *
 * Algorithms differ in the order in which a dot product is summed, in float: the bits of a row
 * depend on the algorithm, never on the other rows. The heuristic prefers another algorithm for
 * every few rows more, and splits K where it is allowed to, so that a caller who promises the same
 * bits for every batch is put to the test. Tests may have algorithms refuse or err:
 * cudasim/products.h. */
#ifndef CUDASIM_CUBLASLT_H
#define CUDASIM_CUBLASLT_H

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    CUDA_R_32F = 0,
    CUDA_R_16F = 2,
    CUDA_R_16BF = 14,
    CUDA_R_8F_E4M3 = 28,
} cudaDataType_t;
typedef cudaDataType_t cudaDataType;

typedef enum {
    CUBLAS_STATUS_SUCCESS = 0,
    CUBLAS_STATUS_NOT_INITIALIZED = 1,
    CUBLAS_STATUS_ALLOC_FAILED = 3,
    CUBLAS_STATUS_INVALID_VALUE = 7,
    CUBLAS_STATUS_EXECUTION_FAILED = 13,
    CUBLAS_STATUS_NOT_SUPPORTED = 15,
} cublasStatus_t;

typedef enum { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1 } cublasOperation_t;
typedef enum { CUBLAS_COMPUTE_32F = 68 } cublasComputeType_t;

const char *cublasLtGetStatusName(cublasStatus_t status);
const char *cublasLtGetStatusString(cublasStatus_t status);

typedef struct cublasLtContext *cublasLtHandle_t;

size_t cublasLtGetVersion(void);
CUDASIM_MUST_CHECK cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle);
CUDASIM_MUST_CHECK cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle);

/* Descriptor of a matrix. */

typedef struct {
    uint64_t data[8];
} cublasLtMatrixLayoutOpaque_t;
typedef cublasLtMatrixLayoutOpaque_t *cublasLtMatrixLayout_t;

CUDASIM_MUST_CHECK cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t layout,
                                                                    size_t size, cudaDataType type,
                                                                    uint64_t rows, uint64_t cols,
                                                                    int64_t ld);

CUDASIM_MUST_CHECK static inline cublasStatus_t
cublasLtMatrixLayoutInit(cublasLtMatrixLayout_t layout, cudaDataType type, uint64_t rows,
                         uint64_t cols, int64_t ld) {
    return cublasLtMatrixLayoutInit_internal(layout, sizeof(*layout), type, rows, cols, ld);
}

/* Descriptor of a product. */

typedef struct {
    uint64_t data[32];
} cublasLtMatmulDescOpaque_t;
typedef cublasLtMatmulDescOpaque_t *cublasLtMatmulDesc_t;

typedef enum {
    CUBLASLT_MATMUL_DESC_TRANSA = 3,           /* int32_t */
    CUBLASLT_MATMUL_DESC_TRANSB = 4,           /* int32_t */
    CUBLASLT_MATMUL_DESC_EPILOGUE = 7,         /* uint32_t */
    CUBLASLT_MATMUL_DESC_BIAS_POINTER = 8,     /* const void * */
    CUBLASLT_MATMUL_DESC_A_SCALE_POINTER = 17, /* const void * */
    CUBLASLT_MATMUL_DESC_B_SCALE_POINTER = 18, /* const void * */
    CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE = 26,  /* int32_t */
    CUBLASLT_MATMUL_DESC_A_SCALE_MODE = 31,    /* int32_t */
    CUBLASLT_MATMUL_DESC_B_SCALE_MODE = 32,    /* int32_t */
} cublasLtMatmulDescAttributes_t;

typedef enum {
    CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F = 0,
    CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F = 3,
} cublasLtMatmulMatrixScale_t;

typedef enum {
    CUBLASLT_EPILOGUE_DEFAULT = 1,
    CUBLASLT_EPILOGUE_BIAS = 4,
} cublasLtEpilogue_t;

CUDASIM_MUST_CHECK cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t desc,
                                                                  size_t size,
                                                                  cublasComputeType_t compute_type,
                                                                  cudaDataType_t scale_type);
CUDASIM_MUST_CHECK cublasStatus_t
cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute,
                               const void *buf, size_t size);

CUDASIM_MUST_CHECK static inline cublasStatus_t
cublasLtMatmulDescInit(cublasLtMatmulDesc_t desc, cublasComputeType_t compute_type,
                       cudaDataType_t scale_type) {
    return cublasLtMatmulDescInit_internal(desc, sizeof(*desc), compute_type, scale_type);
}

/* Narrows what the heuristic may choose from. */

typedef struct {
    uint64_t data[8];
} cublasLtMatmulPreferenceOpaque_t;
typedef cublasLtMatmulPreferenceOpaque_t *cublasLtMatmulPreference_t;

typedef enum {
    CUBLASLT_REDUCTION_SCHEME_NONE = 0,
    CUBLASLT_REDUCTION_SCHEME_INPLACE = 1,
    CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE = 2,
    CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE = 4,
    CUBLASLT_REDUCTION_SCHEME_MASK = 7,
} cublasLtReductionScheme_t;

typedef enum {
    CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES = 1,   /* uint64_t */
    CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK = 3, /* uint32_t */
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES = 5, /* uint32_t, 256 if not set, as the next 3 */
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES = 6,
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES = 7,
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES = 8,
} cublasLtMatmulPreferenceAttributes_t;

CUDASIM_MUST_CHECK cublasStatus_t
cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t preference, size_t size);
CUDASIM_MUST_CHECK cublasStatus_t cublasLtMatmulPreferenceSetAttribute(
    cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute,
    const void *buf, size_t size);

CUDASIM_MUST_CHECK static inline cublasStatus_t
cublasLtMatmulPreferenceInit(cublasLtMatmulPreference_t preference) {
    return cublasLtMatmulPreferenceInit_internal(preference, sizeof(*preference));
}

/* Algorithms. */

typedef struct {
    uint64_t data[8];
} cublasLtMatmulAlgo_t;

typedef struct {
    cublasLtMatmulAlgo_t algo;
    size_t workspaceSize;
    cublasStatus_t state;
    float wavesCount;
    int reserved[4];
} cublasLtMatmulHeuristicResult_t;

typedef enum {
    CUBLASLT_ALGO_CONFIG_ID = 0,               /* int32_t */
    CUBLASLT_ALGO_CONFIG_TILE_ID = 1,          /* uint32_t */
    CUBLASLT_ALGO_CONFIG_SPLITK_NUM = 2,       /* int32_t */
    CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME = 3, /* uint32_t */
    CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING = 4,    /* uint32_t */
    CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION = 5,    /* uint32_t */
    CUBLASLT_ALGO_CONFIG_STAGES_ID = 6,        /* uint32_t */
    CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID = 7,   /* uint16_t */
    CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID = 8, /* uint16_t */
} cublasLtMatmulAlgoConfigAttributes_t;

CUDASIM_MUST_CHECK cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a_layout,
    cublasLtMatrixLayout_t b_layout, cublasLtMatrixLayout_t c_layout,
    cublasLtMatrixLayout_t d_layout, cublasLtMatmulPreference_t preference, int num_requested,
    cublasLtMatmulHeuristicResult_t results[], int *out_num_results);
CUDASIM_MUST_CHECK cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(
    const cublasLtMatmulAlgo_t *algo, cublasLtMatmulAlgoConfigAttributes_t attribute, void *buf,
    size_t size, size_t *out_size);

/* D = alpha op(A) op(B) + beta C (+ bias). alpha and beta are floats in host memory, read now; C is
 * not read when beta is 0. An algorithm must be given (NVIDIA takes none, too). */
CUDASIM_MUST_CHECK cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                                 const void *alpha, const void *a,
                                                 cublasLtMatrixLayout_t a_layout, const void *b,
                                                 cublasLtMatrixLayout_t b_layout, const void *beta,
                                                 const void *c, cublasLtMatrixLayout_t c_layout,
                                                 void *d, cublasLtMatrixLayout_t d_layout,
                                                 const cublasLtMatmulAlgo_t *algo, void *workspace,
                                                 size_t workspace_bytes, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
