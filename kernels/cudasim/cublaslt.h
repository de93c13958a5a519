/* What the simulated cuBLASLt keeps in NVIDIA's opaque structs, and its algorithms. */
#ifndef CUDASIM_PRIVATE_CUBLASLT_H
#define CUDASIM_PRIVATE_CUBLASLT_H

#include "cublasLt.h"

#include <chrono>
#include <cstring>

namespace cudasim {

constexpr uint32_t LAYOUT_MAGIC = 0x6c747731, DESC_MAGIC = 0x6c747732,
                   PREFERENCE_MAGIC = 0x6c747733, ALGORITHM_MAGIC = 0x6c747734;

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
    int32_t bias_type;      /* -1: that of D */
    const float *scales[2]; /* of A's rows and B's columns, of E4M3; NULL: 1 */
    int32_t scale_modes[2];
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
    uint8_t biased, reduction, id;
    uint16_t chunk;
    int32_t splits;
    uint16_t alignment[4];
    uint16_t columns_step; /* N must be a multiple */
};

/* A product whose descriptors are known to fit together: D [m, n], K = k, column major. */
struct problem {
    descriptor desc;
    layout a, b, d;
    uint64_t m, n, k;
};

struct operands {
    const void *a, *b, *c;
    void *d;
    float alpha, beta;
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

inline bool is_16_bit(int type) {
    return type == CUDA_R_16F || type == CUDA_R_16BF;
}

inline size_t type_bytes(int type) {
    return type == CUDA_R_32F ? 4 : type == CUDA_R_8F_E4M3 ? 1 : 2;
}

/* cublaslt_algorithm.cpp */

/* Returns candidate `index` in this GPU's order of preference; false after the last. */
bool candidate(const problem &p, const preference &wish, int index, algorithm *out);
size_t workspace_bytes(const algorithm &algo, const problem &p);
/* Checks whether the algorithm supports this product. */
cublasStatus_t check_algorithm(const algorithm &algo, const problem &p);
/* Device work. */
void multiply(const problem &p, const algorithm &algo, const operands &o);

/* cublaslt_settings.cpp: cudasim/products.h */

void read_products_from_environment();
enum class product_call { heuristic, product };
void count_product_call(product_call call);
bool is_refused(int id, uint64_t num_columns);
bool is_hidden(int id, uint64_t num_columns);
bool is_wrong(int id);
bool is_coarse(int id);
std::chrono::nanoseconds duration_of(int id); /* of the product that runs now */

} // namespace cudasim

#endif
