/* The algorithms of the simulated cuBLASLt.
 *
 * One sums a dot product as tensor cores do, chunk by chunk of K (tensor_core.h); they differ in
 * the chunk, of which GPUs have the smaller two. A split of K sums its parts alike and then, in
 * float, the parts. The result is scaled, C and the bias are added, and it is rounded once to the
 * type of D. Sums of E4M3 keep fewer bits and are moved to float every 128 products. Some
 * algorithms that split take only multiples of a number of columns, as some of a GPU's do. */
#include "cublaslt.h"
#include "tensor_core.h"

#include "cudasim.h"
#include "cudasim/products.h"

#include <algorithm>
#include <vector>

namespace cudasim {

constexpr int NUM_CHUNKS = 4, MAX_SPLITS = 3; /* without a common divisor */
constexpr size_t E4M3_PART = 128;
static_assert(NUM_CHUNKS * MAX_SPLITS == CUDASIM_NUM_ALGORITHMS, "one for each pair");

static size_t chunk_of(size_t index) {
    return 8 * (1 + index % NUM_CHUNKS);
}
static_assert(8 * NUM_CHUNKS <= MAX_CHUNK, "fits a step");

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
    algo.chunk = static_cast<uint16_t>(chunk_of(static_cast<size_t>(chunk)));
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
    if (type == CUDA_R_8F_E4M3)
        return e4m3_value(static_cast<const uint8_t *>(array)[i]);
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

/* How the sums of a product are formed. */
struct summation {
    size_t num_terms, part, chunk;
    int kept_bits;
};

static summation summation_of(const algorithm &algo, const problem &p) {
    size_t splits = static_cast<size_t>(algo.splits);
    summation s;
    s.num_terms = p.k - is_wrong(algo.id); /* a wrong one forgets the last */
    const bool is_e4m3 = p.a.type == CUDA_R_8F_E4M3;
    s.part = is_e4m3 ? E4M3_PART : (s.num_terms + splits - 1) / splits;
    s.chunk = algo.chunk;
    s.kept_bits = is_e4m3 || is_coarse(algo.id) ? KEPT_BITS_OF_E4M3 : KEPT_BITS;
    return s;
}

static four_floats sum_products(const summation &s, const four_floats *a, const float *b,
                                size_t begin, size_t end) {
    four_floats sum = {}, products[MAX_CHUNK];
    for (size_t first = begin; first < end; first += s.chunk) {
        size_t count = std::min(s.chunk, end - first);
        for (size_t k = 0; k < count; k++)
            products[k] = a[first + k] * b[first + k];
        sum = add_chunk(sum, products, static_cast<int>(count), s.kept_bits);
    }
    return sum;
}

static four_floats dot(const summation &s, const four_floats *a, const float *b) {
    four_floats sum = {};
    for (size_t begin = 0; begin < s.num_terms; begin += s.part)
        sum += sum_products(s, a, b, begin, std::min(begin + s.part, s.num_terms));
    return sum;
}

/* Vector `index` of K elements of op(A)'s rows, or op(B)'s columns, `step` floats apart. */
static void load_vector(const layout &l, bool along_column, const void *array, size_t index,
                        float *out, size_t step, size_t k) {
    size_t ld = static_cast<size_t>(l.ld);
    for (size_t i = 0; i < k; i++)
        out[i * step] = load(l.type, array, along_column ? index * ld + i : i * ld + index);
}

static void store_result(const problem &p, const algorithm &algo, const operands &o, size_t i,
                         size_t j, float sum) {
    size_t at = j * static_cast<size_t>(p.d.ld) + i;
    if (p.desc.scales[0] != nullptr)
        sum *= p.desc.scales[0][i] * p.desc.scales[1][j];
    float value = o.alpha * sum;
    if (o.beta != 0)
        value += o.beta * load(p.d.type, o.c, at);
    store(p.d.type, o.d, at, value + (algo.biased ? load(p.d.type, p.desc.bias, i) : 0));
}

void multiply(const problem &p, const algorithm &algo, const operands &o) {
    const summation s = summation_of(algo, p);
    std::vector<float> columns(p.n * p.k);
    std::vector<four_floats> rows(p.k);
    for (size_t j = 0; j < p.n; j++)
        load_vector(p.b, p.desc.trans_b == CUBLAS_OP_N, o.b, j, &columns[j * p.k], 1, p.k);
    for (size_t first = 0; first < p.m; first += 4) {
        size_t num_rows = std::min<size_t>(4, p.m - first);
        for (size_t i = 0; i < num_rows; i++)
            load_vector(p.a, p.desc.trans_a == CUBLAS_OP_T, o.a, first + i,
                        reinterpret_cast<float *>(rows.data()) + i, 4, p.k);
        for (size_t j = 0; j < p.n; j++) {
            four_floats sums = dot(s, rows.data(), &columns[j * p.k]);
            for (size_t i = 0; i < num_rows; i++)
                store_result(p, algo, o, first + i, j, sums[i]);
        }
    }
}

} // namespace cudasim
