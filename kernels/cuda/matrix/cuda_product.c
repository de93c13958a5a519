#include "kernels/cuda/matrix/cuda_product.h"

#define WORKSPACE_BYTES_SM90 ((size_t)32 << 20)
#define WORKSPACE_BYTES_SM80 ((size_t)4 << 20)
#define MAX_CANDIDATES 64
#define ALIGNMENT                                                                                  \
    16 /* of x and out, in bytes; the allocator's is larger, rows of x are a multiple */

/* For functions that return a cublasStatus_t. */
#define TRY(call)                                                                                  \
    do {                                                                                           \
        cublasStatus_t status_ = (call);                                                           \
        if (status_ != CUBLAS_STATUS_SUCCESS)                                                      \
            return status_;                                                                        \
    } while (0)

static cublasStatus_t set_scales(cublasLtMatmulDesc_t operation, const float *of_weights,
                                 const float *of_x) {
    int32_t mode = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
    TRY(cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, &mode,
                                       sizeof(mode)));
    TRY(cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, &mode,
                                       sizeof(mode)));
    TRY(cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &of_weights,
                                       sizeof(of_weights)));
    return cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &of_x,
                                          sizeof(of_x));
}

static cublasStatus_t init_operation(cublasLtMatmulDesc_t operation,
                                     const struct cuda_product_form *form) {
    const void *bias = form->bias;
    int32_t transpose = CUBLAS_OP_T;
    uint32_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    TRY(cublasLtMatmulDescInit(operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    TRY(cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_TRANSA, &transpose,
                                       sizeof(transpose)));
    if (form->weight_scales != NULL)
        TRY(set_scales(operation, form->weight_scales, form->x_scales));
    if (bias == NULL)
        return CUBLAS_STATUS_SUCCESS;
    TRY(cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                                       sizeof(epilogue)));
    return cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
                                          sizeof(bias));
}

cublasStatus_t cuda_product_init(struct cuda_product *out, const struct cuda_product_form *form,
                                 int32_t num_rows) {
    uint64_t n = (uint64_t)form->rows, k = (uint64_t)form->cols, m = (uint64_t)num_rows;
    TRY(init_operation(&out->operation, form));
    TRY(cublasLtMatrixLayoutInit(&out->weights, form->type, k, n, (int64_t)k));
    TRY(cublasLtMatrixLayoutInit(&out->x, form->type, k, m, (int64_t)k));
    return cublasLtMatrixLayoutInit(&out->out, form->out_type, n, m, (int64_t)form->out_stride);
}

static cublasStatus_t prefer(cublasLtMatmulPreference_t preference,
                             cublasLtMatmulPreferenceAttributes_t attribute, uint32_t value) {
    return cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value));
}

/* Parts of K may be summed apart in float only, never in the 16 bits of the output. */
static cublasStatus_t init_preference(cublasLtMatmulPreference_t preference,
                                      uint64_t workspace_bytes) {
    TRY(cublasLtMatmulPreferenceInit(preference));
    TRY(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                             &workspace_bytes, sizeof(workspace_bytes)));
    TRY(prefer(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
               CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    TRY(prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, ALIGNMENT));
    TRY(prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, ALIGNMENT));
    TRY(prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, ALIGNMENT));
    return prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, ALIGNMENT);
}

cublasStatus_t cuda_product_candidates(cublasLtHandle_t handle, struct cuda_product *p,
                                       size_t workspace_bytes, int max, cublasLtMatmulAlgo_t out[],
                                       int *out_num) {
    cublasLtMatmulPreferenceOpaque_t preference;
    cublasLtMatmulHeuristicResult_t candidates[MAX_CANDIDATES];
    int num_candidates = 0;
    *out_num = 0;
    TRY(init_preference(&preference, workspace_bytes));
    cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        handle, &p->operation, &p->weights, &p->x, &p->out, &p->out, &preference,
        max < MAX_CANDIDATES ? max : MAX_CANDIDATES, candidates, &num_candidates);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED)
        return CUBLAS_STATUS_SUCCESS;
    TRY(status);
    for (int i = 0; i < num_candidates; i++)
        if (candidates[i].state == CUBLAS_STATUS_SUCCESS &&
            candidates[i].workspaceSize <= workspace_bytes)
            out[(*out_num)++] = candidates[i].algo;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cuda_product_multiply(cublasLtHandle_t handle, struct cuda_product *p,
                                     const cublasLtMatmulAlgo_t *algorithm,
                                     const struct cuda_product_arrays *arrays,
                                     cudaStream_t stream) {
    float beta = arrays->addend != NULL ? 1.0F : 0.0F;
    const void *addend = arrays->addend != NULL ? arrays->addend : arrays->out;
    return cublasLtMatmul(handle, &p->operation, &arrays->scale, arrays->weights, &p->weights,
                          arrays->x, &p->x, &beta, addend, &p->out, arrays->out, &p->out, algorithm,
                          arrays->workspace, arrays->workspace_bytes, stream);
}

bool cuda_product_is_refusal(cublasStatus_t status) {
    return status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE;
}

size_t cuda_product_workspace_bytes(int compute_capability_major) {
    return compute_capability_major >= 9 ? WORKSPACE_BYTES_SM90 : WORKSPACE_BYTES_SM80;
}
