/* cuBLASLt's products: first what a descriptor says is checked, then the product is queued.
 *
 * An algorithm sums a dot product in chunks of K: each chunk from zero, the chunks one after the
 * other, all in float; a split of K sums its parts alike and then the parts. The result is scaled,
 * C and the bias are added, and it is rounded once to the type of D. Some algorithms that split
 * take only multiples of a number of columns, as some of a GPU's do. */
#include "cublasLt.h"

#include "cudasim.h"
#include "device.h"
#include "fatal.h"

#include <cstring>
#include <vector>

struct cublasLtContext {
    uint32_t magic;
};

namespace {

constexpr uint32_t CONTEXT_MAGIC = 0x6c74c0de, LAYOUT_MAGIC = 0x6c747731, DESC_MAGIC = 0x6c747732,
                   PREFERENCE_MAGIC = 0x6c747733, ALGORITHM_MAGIC = 0x6c747734;
constexpr size_t WORKSPACE_ALIGNMENT = 256, BIAS_ALIGNMENT = 16;
constexpr int MAX_SPLITS = 3;

struct layout {
    uint32_t magic;
    cudaDataType type;
    uint64_t rows, cols;
    int64_t ld;
};

struct descriptor {
    uint32_t magic;
    int32_t trans_a, trans_b;
    uint32_t epilogue;
    const void *bias;
    int32_t bias_type; /* -1: that of D */
};

struct preference {
    uint32_t magic;
    uint32_t reduction_mask;
    uint64_t max_workspace;
    uint32_t alignment[4]; /* of A, B, C, D */
};

/* Says what the algorithm is for, and how it sums. */
struct algorithm {
    uint32_t magic;
    uint8_t ab_type, d_type, trans_a, trans_b;
    uint8_t biased, reduction;
    uint16_t chunk;
    int32_t splits;
    uint16_t alignment[4];
    uint16_t columns_step; /* N must be a multiple */
};

/* Our form of an opaque struct, copied out and back in: NVIDIA's may lie anywhere. */
template <class T, class Opaque> bool read(T *out, const Opaque *opaque, uint32_t magic) {
    static_assert(sizeof(T) <= sizeof(Opaque), "fits NVIDIA's struct");
    if (opaque == nullptr)
        return false;
    memcpy(out, opaque, sizeof(T));
    return out->magic == magic;
}

template <class T, class Opaque> void write(Opaque *opaque, const T &value) {
    memset(opaque, 0, sizeof(*opaque));
    memcpy(opaque, &value, sizeof(value));
}

bool is_16_bit(int type) {
    return type == CUDA_R_16F || type == CUDA_R_16BF;
}

size_t type_bytes(int type) {
    return type == CUDA_R_32F ? 4 : 2;
}

bool is_valid(const cublasLtContext *handle) {
    return handle != nullptr && handle->magic == CONTEXT_MAGIC;
}

/* A product whose descriptors are known to fit together: D [m, n], K = k, column major. */
struct problem {
    descriptor desc;
    layout a, b, d;
    uint64_t m, n, k;
};

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
    if (p.a.type != p.b.type || !is_16_bit(p.a.type) ||
        (p.d.type != p.a.type && p.d.type != CUDA_R_32F) || c_layout.ld != p.d.ld)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    *out = p;
    return CUBLAS_STATUS_SUCCESS;
}

uint16_t usable_alignment(const layout &l, uint32_t pointer_alignment) {
    uint32_t bytes = 16;
    while (bytes > pointer_alignment || static_cast<uint64_t>(l.ld) * type_bytes(l.type) % bytes)
        bytes /= 2;
    return static_cast<uint16_t>(bytes);
}

/* The candidates in the order in which this GPU likes them for n columns. */
algorithm candidate(const problem &p, const preference &wish, int index) {
    bool may_split = (wish.reduction_mask & CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE) != 0;
    int order = static_cast<int>(p.n / 3) + index;
    algorithm algo = {};
    algo.magic = ALGORITHM_MAGIC;
    algo.ab_type = static_cast<uint8_t>(p.a.type);
    algo.d_type = static_cast<uint8_t>(p.d.type);
    algo.trans_a = static_cast<uint8_t>(p.desc.trans_a);
    algo.trans_b = static_cast<uint8_t>(p.desc.trans_b);
    algo.biased = p.desc.epilogue == CUBLASLT_EPILOGUE_BIAS;
    algo.chunk = static_cast<uint16_t>(8 << order % 4);
    algo.splits = may_split ? 1 + (order + 1) % MAX_SPLITS : 1;
    algo.reduction =
        algo.splits > 1 ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE : CUBLASLT_REDUCTION_SCHEME_NONE;
    algo.columns_step = may_split && order % 3 == 1 && p.n % 4 == 0 ? 4 : 1;
    const layout *layouts[] = {&p.a, &p.b, &p.d, &p.d};
    for (int i = 0; i < 4; i++)
        algo.alignment[i] = usable_alignment(*layouts[i], wish.alignment[i]);
    return algo;
}

size_t workspace_bytes(const algorithm &algo, const problem &p) {
    return algo.splits > 1 ? static_cast<size_t>(algo.splits) * p.m * p.n * sizeof(float) : 0;
}

cublasStatus_t check(const algorithm &algo, const problem &p) {
    if (algo.ab_type != p.a.type || algo.d_type != p.d.type || algo.trans_a != p.desc.trans_a ||
        algo.trans_b != p.desc.trans_b ||
        algo.biased != (p.desc.epilogue == CUBLASLT_EPILOGUE_BIAS))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (p.n % algo.columns_step != 0)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    const layout *layouts[] = {&p.a, &p.b, &p.d, &p.d};
    for (int i = 0; i < 4; i++)
        if (usable_alignment(*layouts[i], algo.alignment[i]) < algo.alignment[i])
            return CUBLAS_STATUS_NOT_SUPPORTED;
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

/* Device work. */

float load(int type, const void *array, size_t i) {
    if (type == CUDA_R_32F)
        return static_cast<const float *>(array)[i];
    if (type == CUDA_R_16BF)
        return __bfloat162float(static_cast<const __nv_bfloat16 *>(array)[i]);
    return __half2float(static_cast<const __half *>(array)[i]);
}

void store(int type, void *array, size_t i, float value) {
    if (type == CUDA_R_32F)
        static_cast<float *>(array)[i] = value;
    else if (type == CUDA_R_16BF)
        static_cast<__nv_bfloat16 *>(array)[i] = __float2bfloat16_rn(value);
    else
        static_cast<__half *>(array)[i] = __float2half_rn(value);
}

float sum_products(const float *a, const float *b, size_t begin, size_t end, size_t chunk) {
    float sum = 0;
    for (size_t first = begin; first < end; first += chunk) {
        float part = 0;
        for (size_t k = first; k < end && k < first + chunk; k++)
            part += a[k] * b[k];
        sum += part;
    }
    return sum;
}

float dot(const algorithm &algo, const float *a, const float *b, size_t k) {
    size_t part = (k + static_cast<size_t>(algo.splits) - 1) / static_cast<size_t>(algo.splits);
    float sum = 0;
    for (size_t begin = 0; begin < k; begin += part)
        sum += sum_products(a, b, begin, begin + part < k ? begin + part : k, algo.chunk);
    return sum;
}

/* Vector `index` of K elements of op(A)'s rows, or op(B)'s columns. */
void load_vector(const layout &l, bool along_column, const void *array, size_t index, float *out,
                 size_t k) {
    size_t ld = static_cast<size_t>(l.ld);
    for (size_t i = 0; i < k; i++)
        out[i] = load(l.type, array, along_column ? index * ld + i : i * ld + index);
}

struct operands {
    const void *a, *b, *c;
    void *d;
    float alpha, beta;
};

void multiply(const problem &p, const algorithm &algo, const operands &o) {
    std::vector<float> columns(p.n * p.k), row(p.k);
    for (size_t j = 0; j < p.n; j++)
        load_vector(p.b, p.desc.trans_b == CUBLAS_OP_N, o.b, j, &columns[j * p.k], p.k);
    for (size_t i = 0; i < p.m; i++) {
        load_vector(p.a, p.desc.trans_a == CUBLAS_OP_T, o.a, i, row.data(), p.k);
        float bias = algo.biased ? load(p.d.type, p.desc.bias, i) : 0;
        for (size_t j = 0; j < p.n; j++) {
            size_t at = j * static_cast<size_t>(p.d.ld) + i;
            float value = o.alpha * dot(algo, row.data(), &columns[j * p.k], p.k);
            if (o.beta != 0)
                value += o.beta * load(p.d.type, o.c, at);
            store(p.d.type, o.d, at, value + bias);
        }
    }
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
        ld < static_cast<int64_t>(rows) || (type != CUDA_R_32F && !is_16_bit(type)))
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
    write(out,
          descriptor{DESC_MAGIC, CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT, nullptr, -1});
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
    problem p;
    preference wish;
    cublasStatus_t status = describe(handle, desc, a_layout, b_layout, c_layout, d_layout, &p);
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    if (!read(&wish, opaque, PREFERENCE_MAGIC) || num_requested <= 0 || results == nullptr ||
        out_num_results == nullptr)
        return CUBLAS_STATUS_INVALID_VALUE;
    int num_results = 0;
    for (int i = 0; i < 4 * MAX_SPLITS && num_results < num_requested; i++) {
        algorithm algo = candidate(p, wish, i);
        size_t bytes = workspace_bytes(algo, p);
        if (bytes > wish.max_workspace)
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

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                       cublasLtMatrixLayout_t a_layout,
                                       cublasLtMatrixLayout_t b_layout,
                                       cublasLtMatrixLayout_t c_layout,
                                       cublasLtMatrixLayout_t d_layout,
                                       const cublasLtMatmulAlgo_t *opaque,
                                       cublasLtMatmulHeuristicResult_t *result) {
    problem p;
    algorithm algo;
    cublasStatus_t status = describe(handle, desc, a_layout, b_layout, c_layout, d_layout, &p);
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    if (!read(&algo, opaque, ALGORITHM_MAGIC) || result == nullptr)
        return CUBLAS_STATUS_INVALID_VALUE;
    status = check(algo, p);
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    result->workspaceSize = workspace_bytes(algo, p);
    result->state = CUBLAS_STATUS_SUCCESS;
    result->wavesCount = 1.0F;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *opaque,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute,
                                                    void *buf, size_t size, size_t *out_size) {
    algorithm algo;
    if (!read(&algo, opaque, ALGORITHM_MAGIC))
        return CUBLAS_STATUS_INVALID_VALUE;
    switch (attribute) {
    case CUBLASLT_ALGO_CONFIG_ID:
        return get(static_cast<int32_t>(algo.chunk), buf, size, out_size);
    case CUBLASLT_ALGO_CONFIG_SPLITK_NUM:
        return get(algo.splits, buf, size, out_size);
    case CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME:
        return get(static_cast<uint32_t>(algo.reduction), buf, size, out_size);
    }
    return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t a_layout, const void *b,
                              cublasLtMatrixLayout_t b_layout, const void *beta, const void *c,
                              cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *opaque,
                              void *workspace, size_t workspace_size, cudaStream_t stream) {
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
    status = check(algo, p);
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
    if (algo.biased)
        check_array("the bias", p.desc.bias, p.m * type_bytes(p.d.type));
    if (needed > 0)
        check_array("the workspace", workspace, needed);
    cudasim::enqueue_work(stream, [p, algo, o] { multiply(p, algo, o); });
    return CUBLAS_STATUS_SUCCESS;
}
