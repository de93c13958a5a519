/* The calls of cuBLASLt: what a descriptor says is checked, then the product is queued. */
#include "cublaslt.h"

#include "device.h"
#include "fatal.h"

#include "cudasim/launch.h"

using namespace cudasim;

struct cublasLtContext {
    uint32_t magic;
};

namespace {

constexpr uint32_t CONTEXT_MAGIC = 0x6c74c0de;
constexpr size_t WORKSPACE_ALIGNMENT = 256, BIAS_ALIGNMENT = 16;

bool is_valid(const cublasLtContext *handle) {
    return handle != nullptr && handle->magic == CONTEXT_MAGIC;
}

/* By the rules of cublasLtMatmul for 8-bit floats. */
bool is_supported_e4m3(const problem &p) {
    const descriptor &desc = p.desc;
    const bool is_scaled = desc.scales[0] != nullptr && desc.scales[1] != nullptr;
    const bool is_plain = desc.scales[0] == nullptr && desc.scales[1] == nullptr;
    for (int32_t mode : desc.scale_modes)
        if (mode != (is_scaled ? CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F
                               : CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F))
            return false;
    if (!is_plain && !is_scaled)
        return false;
    if (desc.epilogue == CUBLASLT_EPILOGUE_BIAS && p.d.type == CUDA_R_32F)
        return false; /* one of bf16, which nobody needs here */
    for (const layout *l : {&p.a, &p.b, &p.d})
        if (l->rows * type_bytes(l->type) % 16 != 0 ||
            static_cast<uint64_t>(l->ld) * type_bytes(l->type) % 16 != 0)
            return false;
    return desc.trans_a == CUBLAS_OP_T && desc.trans_b == CUBLAS_OP_N &&
           (is_16_bit(p.d.type) || p.d.type == CUDA_R_32F);
}

bool is_supported(const problem &p, const layout &c) {
    if (p.a.type != p.b.type || c.ld != p.d.ld)
        return false;
    if (p.a.type == CUDA_R_8F_E4M3)
        return is_supported_e4m3(p);
    return is_16_bit(p.a.type) && (p.d.type == p.a.type || p.d.type == CUDA_R_32F);
}

cublasStatus_t describe(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                        cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                        cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d, problem *out) {
    problem p;
    layout c_layout;
    if (!is_valid(handle))
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!read(&p.desc, desc, DESC_MAGIC) || !read(&p.a, a, LAYOUT_MAGIC) ||
        !read(&p.b, b, LAYOUT_MAGIC) || !read(&c_layout, c, LAYOUT_MAGIC) ||
        !read(&p.d, d, LAYOUT_MAGIC))
        return CUBLAS_STATUS_INVALID_VALUE;
    p.m = p.d.rows;
    p.n = p.d.cols;
    p.k = p.desc.trans_a == CUBLAS_OP_T ? p.a.rows : p.a.cols;
    uint64_t a_m = p.desc.trans_a == CUBLAS_OP_T ? p.a.cols : p.a.rows;
    uint64_t b_k = p.desc.trans_b == CUBLAS_OP_T ? p.b.cols : p.b.rows;
    uint64_t b_n = p.desc.trans_b == CUBLAS_OP_T ? p.b.rows : p.b.cols;
    if (a_m != p.m || b_k != p.k || b_n != p.n || c_layout.rows != p.m || c_layout.cols != p.n ||
        c_layout.type != p.d.type)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (p.desc.epilogue == CUBLASLT_EPILOGUE_BIAS &&
        (p.desc.bias == nullptr ||
         (p.desc.bias_type != -1 && p.desc.bias_type != static_cast<int32_t>(p.d.type))))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (p.a.type != CUDA_R_8F_E4M3 && (p.desc.scales[0] != nullptr || p.desc.scales[1] != nullptr))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!is_supported(p, c_layout))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    *out = p;
    return CUBLAS_STATUS_SUCCESS;
}

bool is_aligned(const void *p, size_t alignment) {
    return reinterpret_cast<uintptr_t>(p) % alignment == 0;
}

size_t array_bytes(const layout &l) {
    return ((static_cast<size_t>(l.cols) - 1) * static_cast<size_t>(l.ld) + l.rows) *
           type_bytes(l.type);
}

/* A GPU reads whatever the address is, and fails for good where it is not its own. */
void check_array(const char *name, const void *array, size_t bytes) {
    cudasim::api_call call;
    if (!cudasim::range_within(call.dev.device_memory, array, bytes))
        cudasim::fatal("cublasLtMatmul: %s is not %zu bytes of device memory", name, bytes);
}

template <class T> cublasStatus_t set(T *field, const void *buf, size_t size) {
    if (buf == nullptr || size != sizeof(T))
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(field, buf, size);
    return CUBLAS_STATUS_SUCCESS;
}

template <class T> cublasStatus_t get(const T &value, void *buf, size_t size, size_t *out_size) {
    if (size != 0 && (buf == nullptr || size != sizeof(T)))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (size == 0 && out_size == nullptr)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (size != 0)
        memcpy(buf, &value, size);
    if (out_size != nullptr)
        *out_size = sizeof(T);
    return CUBLAS_STATUS_SUCCESS;
}

} // namespace

const char *cublasLtGetStatusName(cublasStatus_t status) {
    switch (status) {
    case CUBLAS_STATUS_SUCCESS:
        return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
        return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED:
        return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE:
        return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_EXECUTION_FAILED:
        return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_NOT_SUPPORTED:
        return "CUBLAS_STATUS_NOT_SUPPORTED";
    }
    return "unknown";
}

const char *cublasLtGetStatusString(cublasStatus_t status) {
    switch (status) {
    case CUBLAS_STATUS_SUCCESS:
        return "success";
    case CUBLAS_STATUS_NOT_INITIALIZED:
        return "the library was not initialized";
    case CUBLAS_STATUS_ALLOC_FAILED:
        return "the resource allocation failed";
    case CUBLAS_STATUS_INVALID_VALUE:
        return "an unsupported value or parameter was passed to the function";
    case CUBLAS_STATUS_EXECUTION_FAILED:
        return "the function failed to launch on the GPU";
    case CUBLAS_STATUS_NOT_SUPPORTED:
        return "the requested functionality is not supported";
    }
    return "unknown";
}

size_t cublasLtGetVersion() {
    return 130000;
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) {
    if (handle == nullptr)
        return CUBLAS_STATUS_INVALID_VALUE;
    *handle = new cublasLtContext{CONTEXT_MAGIC};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
    if (!is_valid(handle))
        return CUBLAS_STATUS_NOT_INITIALIZED;
    handle->magic = 0;
    delete handle;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t out, size_t size,
                                                 cudaDataType type, uint64_t rows, uint64_t cols,
                                                 int64_t ld) {
    if (out == nullptr || rows == 0 || cols == 0 || rows > INT32_MAX || cols > INT32_MAX ||
        ld < static_cast<int64_t>(rows) ||
        (type != CUDA_R_32F && type != CUDA_R_8F_E4M3 && !is_16_bit(type)))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (size < sizeof(*out))
        return CUBLAS_STATUS_ALLOC_FAILED;
    write(out, layout{LAYOUT_MAGIC, type, rows, cols, ld});
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t out, size_t size,
                                               cublasComputeType_t compute_type,
                                               cudaDataType_t scale_type) {
    if (out == nullptr || compute_type != CUBLAS_COMPUTE_32F || scale_type != CUDA_R_32F)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (size < sizeof(*out))
        return CUBLAS_STATUS_ALLOC_FAILED;
    write(
        out,
        descriptor{
            DESC_MAGIC, CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT, nullptr, -1, {}, {}});
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void *buf, size_t size) {
    descriptor value;
    cublasStatus_t status = CUBLAS_STATUS_INVALID_VALUE;
    if (!read(&value, desc, DESC_MAGIC))
        return status;
    switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
        status = set(&value.trans_a, buf, size);
        break;
    case CUBLASLT_MATMUL_DESC_TRANSB:
        status = set(&value.trans_b, buf, size);
        break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        status = set(&value.epilogue, buf, size);
        break;
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        status = set(&value.bias, buf, size);
        break;
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
        status = set(&value.bias_type, buf, size);
        break;
    case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER:
    case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER:
        status = set(&value.scales[attribute - CUBLASLT_MATMUL_DESC_A_SCALE_POINTER], buf, size);
        break;
    case CUBLASLT_MATMUL_DESC_A_SCALE_MODE:
    case CUBLASLT_MATMUL_DESC_B_SCALE_MODE:
        status = set(&value.scale_modes[attribute - CUBLASLT_MATMUL_DESC_A_SCALE_MODE], buf, size);
        break;
    }
    bool known =
        (value.trans_a == CUBLAS_OP_N || value.trans_a == CUBLAS_OP_T) &&
        (value.trans_b == CUBLAS_OP_N || value.trans_b == CUBLAS_OP_T) &&
        (value.epilogue == CUBLASLT_EPILOGUE_DEFAULT || value.epilogue == CUBLASLT_EPILOGUE_BIAS);
    if (status != CUBLAS_STATUS_SUCCESS || !known)
        return CUBLAS_STATUS_INVALID_VALUE;
    write(desc, value);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t out, size_t size) {
    if (out == nullptr)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (size < sizeof(*out))
        return CUBLAS_STATUS_ALLOC_FAILED;
    write(out,
          preference{PREFERENCE_MAGIC, CUBLASLT_REDUCTION_SCHEME_MASK, 0, {256, 256, 256, 256}});
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t opaque,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void *buf, size_t size) {
    preference value;
    cublasStatus_t status = CUBLAS_STATUS_INVALID_VALUE;
    if (!read(&value, opaque, PREFERENCE_MAGIC))
        return status;
    switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
        status = set(&value.max_workspace, buf, size);
        break;
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
        status = set(&value.reduction_mask, buf, size);
        break;
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES: {
        uint32_t *alignment =
            &value.alignment[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES];
        status = set(alignment, buf, size);
        if (*alignment < 2 || (*alignment & (*alignment - 1)) != 0)
            status = CUBLAS_STATUS_INVALID_VALUE;
        break;
    }
    }
    if (status == CUBLAS_STATUS_SUCCESS)
        write(opaque, value);
    return status;
}

cublasStatus_t
cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                               cublasLtMatrixLayout_t a_layout, cublasLtMatrixLayout_t b_layout,
                               cublasLtMatrixLayout_t c_layout, cublasLtMatrixLayout_t d_layout,
                               cublasLtMatmulPreference_t opaque, int num_requested,
                               cublasLtMatmulHeuristicResult_t results[], int *out_num_results) {
    count_product_call(product_call::heuristic);
    problem p;
    preference wish;
    cublasStatus_t status = describe(handle, desc, a_layout, b_layout, c_layout, d_layout, &p);
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    if (!read(&wish, opaque, PREFERENCE_MAGIC) || num_requested <= 0 || results == nullptr ||
        out_num_results == nullptr)
        return CUBLAS_STATUS_INVALID_VALUE;
    int num_results = 0;
    algorithm algo;
    for (int i = 0; num_results < num_requested && candidate(p, wish, i, &algo); i++) {
        size_t bytes = workspace_bytes(algo, p);
        if (bytes > wish.max_workspace || is_hidden(algo.id, p.n))
            continue;
        cublasLtMatmulHeuristicResult_t *result = &results[num_results++];
        memset(result, 0, sizeof(*result));
        write(&result->algo, algo);
        result->workspaceSize = bytes;
        result->state = CUBLAS_STATUS_SUCCESS;
        result->wavesCount = 1.0F;
    }
    *out_num_results = num_results;
    return num_results > 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *opaque,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute,
                                                    void *buf, size_t size, size_t *out_size) {
    algorithm algo;
    if (!read(&algo, opaque, ALGORITHM_MAGIC))
        return CUBLAS_STATUS_INVALID_VALUE;
    switch (attribute) {
    case CUBLASLT_ALGO_CONFIG_ID:
        return get(static_cast<int32_t>(algo.id), buf, size, out_size);
    case CUBLASLT_ALGO_CONFIG_TILE_ID:
        return get(static_cast<uint32_t>(algo.chunk), buf, size, out_size);
    case CUBLASLT_ALGO_CONFIG_SPLITK_NUM:
        return get(algo.splits, buf, size, out_size);
    case CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME:
        return get(static_cast<uint32_t>(algo.reduction), buf, size, out_size);
    case CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING:
    case CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION:
    case CUBLASLT_ALGO_CONFIG_STAGES_ID:
        return get(static_cast<uint32_t>(0), buf, size, out_size);
    case CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID:
    case CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID:
        return get(static_cast<uint16_t>(0), buf, size, out_size);
    }
    return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t a_layout, const void *b,
                              cublasLtMatrixLayout_t b_layout, const void *beta, const void *c,
                              cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *opaque,
                              void *workspace, size_t workspace_size, cudaStream_t stream) {
    count_product_call(product_call::product);
    problem p;
    algorithm algo;
    cublasStatus_t status = describe(handle, desc, a_layout, b_layout, c_layout, d_layout, &p);
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    if (alpha == nullptr || beta == nullptr || a == nullptr || b == nullptr || d == nullptr ||
        !read(&algo, opaque, ALGORITHM_MAGIC))
        return CUBLAS_STATUS_INVALID_VALUE;
    operands o = {a, b, c, d, 0, 0};
    memcpy(&o.alpha, alpha, sizeof(float));
    memcpy(&o.beta, beta, sizeof(float));
    status = check_algorithm(algo, p);
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    size_t needed = workspace_bytes(algo, p);
    const void *arrays[] = {a, b, c, d};
    for (int i = 0; i < 4; i++)
        if (!is_aligned(arrays[i], algo.alignment[i]))
            return CUBLAS_STATUS_INVALID_VALUE;
    if (workspace_size < needed || (needed > 0 && workspace == nullptr) ||
        !is_aligned(workspace, WORKSPACE_ALIGNMENT) || (c == nullptr && o.beta != 0) ||
        (algo.biased && !is_aligned(p.desc.bias, BIAS_ALIGNMENT)))
        return CUBLAS_STATUS_INVALID_VALUE;
    check_array("A", a, array_bytes(p.a));
    check_array("B", b, array_bytes(p.b));
    check_array("D", d, array_bytes(p.d));
    if (c != nullptr)
        check_array("C", c, array_bytes(p.d));
    if (p.desc.scales[0] != nullptr) {
        check_array("A's scales", p.desc.scales[0], p.m * sizeof(float));
        check_array("B's scales", p.desc.scales[1], p.n * sizeof(float));
    }
    if (algo.biased)
        check_array("the bias", p.desc.bias, p.m * type_bytes(p.d.type));
    if (needed > 0)
        check_array("the workspace", workspace, needed);
    cudasim::enqueue_work(stream, [p, algo, o] {
        simulated_duration duration(duration_of(algo.id));
        multiply(p, algo, o);
    });
    return CUBLAS_STATUS_SUCCESS;
}
