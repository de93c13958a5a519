/* The algorithms of the simulated cuBLASLt.
 *
 * One sums a dot product in chunks of K: each chunk from zero, the chunks one after the other, all
 * in float; a split of K sums its parts alike and then the parts. The result is scaled, C and the
 * bias are added, and it is rounded once to the type of D. Some algorithms that split take only
 * multiples of a number of columns, as some of a GPU's do. */
#include "cublaslt.h"

#include "cudasim.h"
#include "cudasim/products.h"

#include <vector>

namespace cudasim {

constexpr int NUM_CHUNKS = 4, MAX_SPLITS = 3; /* without a common divisor */
static_assert(NUM_CHUNKS * MAX_SPLITS == CUDASIM_NUM_ALGORITHMS, "one for each pair");

static uint16_t usable_alignment(const layout &l, uint32_t pointer_alignment) {
    uint32_t bytes = 16;
    while (bytes > pointer_alignment || static_cast<uint64_t>(l.ld) * type_bytes(l.type) % bytes)
        bytes /= 2;
    return static_cast<uint16_t>(bytes);
}

/* Those that do not split K are fewer: all that are left where it may not be split. */
bool candidate(const problem &p, const preference &wish, int index, algorithm *out) {
    bool may_split = (wish.reduction_mask & CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE) != 0;
    int order = static_cast<int>(p.n / 3) + index;
    int chunk = order % NUM_CHUNKS, splits = may_split ? 1 + (order + 1) % MAX_SPLITS : 1;
    if (index >= (may_split ? NUM_CHUNKS * MAX_SPLITS : NUM_CHUNKS))
        return false;
    algorithm algo = {};
    algo.magic = ALGORITHM_MAGIC;
    algo.ab_type = static_cast<uint8_t>(p.a.type);
    algo.d_type = static_cast<uint8_t>(p.d.type);
    algo.trans_a = static_cast<uint8_t>(p.desc.trans_a);
    algo.trans_b = static_cast<uint8_t>(p.desc.trans_b);
    algo.biased = p.desc.epilogue == CUBLASLT_EPILOGUE_BIAS;
    algo.id = static_cast<uint8_t>(NUM_CHUNKS * (splits - 1) + chunk);
    algo.chunk = static_cast<uint16_t>(8 << chunk);
    algo.splits = splits;
    algo.reduction =
        algo.splits > 1 ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE : CUBLASLT_REDUCTION_SCHEME_NONE;
    algo.columns_step = may_split && order % 3 == 1 && p.n % 4 == 0 ? 4 : 1;
    const layout *layouts[] = {&p.a, &p.b, &p.d, &p.d};
    for (int i = 0; i < 4; i++)
        algo.alignment[i] = usable_alignment(*layouts[i], wish.alignment[i]);
    *out = algo;
    return true;
}

size_t workspace_bytes(const algorithm &algo, const problem &p) {
    return algo.splits > 1 ? static_cast<size_t>(algo.splits) * p.m * p.n * sizeof(float) : 0;
}

cublasStatus_t check_algorithm(const algorithm &algo, const problem &p) {
    if (algo.ab_type != p.a.type || algo.d_type != p.d.type || algo.trans_a != p.desc.trans_a ||
        algo.trans_b != p.desc.trans_b ||
        algo.biased != (p.desc.epilogue == CUBLASLT_EPILOGUE_BIAS))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (p.n % algo.columns_step != 0 || is_refused(algo.id, p.n))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    const layout *layouts[] = {&p.a, &p.b, &p.d, &p.d};
    for (int i = 0; i < 4; i++)
        if (usable_alignment(*layouts[i], algo.alignment[i]) < algo.alignment[i])
            return CUBLAS_STATUS_NOT_SUPPORTED;
    return CUBLAS_STATUS_SUCCESS;
}

static float load(int type, const void *array, size_t i) {
    if (type == CUDA_R_32F)
        return static_cast<const float *>(array)[i];
    if (type == CUDA_R_16BF)
        return __bfloat162float(static_cast<const __nv_bfloat16 *>(array)[i]);
    return __half2float(static_cast<const __half *>(array)[i]);
}

static void store(int type, void *array, size_t i, float value) {
    if (type == CUDA_R_32F)
        static_cast<float *>(array)[i] = value;
    else if (type == CUDA_R_16BF)
        static_cast<__nv_bfloat16 *>(array)[i] = __float2bfloat16_rn(value);
    else
        static_cast<__half *>(array)[i] = __float2half_rn(value);
}

static float sum_products(const float *a, const float *b, size_t begin, size_t end, size_t chunk) {
    float sum = 0;
    for (size_t first = begin; first < end; first += chunk) {
        float part = 0;
        for (size_t k = first; k < end && k < first + chunk; k++)
            part += a[k] * b[k];
        sum += part;
    }
    return sum;
}

static float dot(const algorithm &algo, const float *a, const float *b, size_t k, size_t chunk) {
    size_t part = (k + static_cast<size_t>(algo.splits) - 1) / static_cast<size_t>(algo.splits);
    float sum = 0;
    for (size_t begin = 0; begin < k; begin += part)
        sum += sum_products(a, b, begin, begin + part < k ? begin + part : k, chunk);
    return sum;
}

/* Vector `index` of K elements of op(A)'s rows, or op(B)'s columns. */
static void load_vector(const layout &l, bool along_column, const void *array, size_t index,
                        float *out, size_t k) {
    size_t ld = static_cast<size_t>(l.ld);
    for (size_t i = 0; i < k; i++)
        out[i] = load(l.type, array, along_column ? index * ld + i : i * ld + index);
}

void multiply(const problem &p, const algorithm &algo, const operands &o) {
    std::vector<float> columns(p.n * p.k), row(p.k);
    size_t num_terms = p.k - is_wrong(algo.id); /* a wrong one forgets the last */
    size_t chunk = is_varied(algo.id) ? 8U << p.n % NUM_CHUNKS : algo.chunk;
    for (size_t j = 0; j < p.n; j++)
        load_vector(p.b, p.desc.trans_b == CUBLAS_OP_N, o.b, j, &columns[j * p.k], p.k);
    for (size_t i = 0; i < p.m; i++) {
        load_vector(p.a, p.desc.trans_a == CUBLAS_OP_T, o.a, i, row.data(), p.k);
        float bias = algo.biased ? load(p.d.type, p.desc.bias, i) : 0;
        for (size_t j = 0; j < p.n; j++) {
            size_t at = j * static_cast<size_t>(p.d.ld) + i;
            float value = o.alpha * dot(algo, row.data(), &columns[j * p.k], num_terms, chunk);
            if (o.beta != 0)
                value += o.beta * load(p.d.type, o.c, at);
            store(p.d.type, o.d, at, value + bias);
        }
    }
}

} // namespace cudasim
