/* Tensor-core instructions. Operand layouts: kernels/cuda/device/device_ptx.cuh. The last lane to
 * arrive computes for the whole warp. */
#include "cudasim/matrix.h"

#include "fatal.h"
#include "shared_memory.h"
#include "tensor_core.h"

#include <string.h>

namespace cudasim {

const int ROWS = 16, COLS = 8, MAX_INNER = 32;

struct e4m3 {
    uint8_t bits;
};

static float decode(__nv_bfloat16 x) {
    return __bfloat162float(x);
}
static float decode(__half x) {
    return __half2float(x);
}

static float decode(e4m3 x) {
    return e4m3_value(x.bits);
}

/* Products that are added in one step, and bits kept. 16-bit: an A100's, whose sums lose more than
 * an H100's. */
template <class T> const int chunk_of = 8;
template <> const int chunk_of<e4m3> = 16;
template <class T> const int kept_bits_of = KEPT_BITS;
template <> const int kept_bits_of<e4m3> = KEPT_BITS_OF_E4M3;

/* Elements in a register. */
template <class T> const int width_of = 4 / (int)sizeof(T);

/* Holds what a lane brings to a product; the low bits of a register hold the lower index. */
template <class T> struct fragments {
    float acc[4];
    T a[4][width_of<T>];
    T b[2][width_of<T>];
};

/* The fragments of all lanes, decoded. */
struct matrices {
    float a[ROWS][MAX_INNER], b[MAX_INNER][COLS], sum[ROWS][COLS];
};

template <class T> static void gather(const warp_exchange &meeting, matrices *out) {
    const int width = width_of<T>;
    for (int lane = 0; lane < 32; lane++) {
        fragments<T> own;
        memcpy(&own, meeting.box[lane], sizeof own);
        int group = lane / 4, first = lane % 4 * width;
        for (int i = 0; i < 4; i++) {
            for (int e = 0; e < width; e++)
                out->a[group + i % 2 * 8][first + e + i / 2 * 4 * width] = decode(own.a[i][e]);
            out->sum[group + i / 2 * 8][lane % 4 * 2 + i % 2] = own.acc[i];
        }
        for (int i = 0; i < 2; i++)
            for (int e = 0; e < width; e++)
                out->b[first + e + i * 4 * width][group] = decode(own.b[i][e]);
    }
}

/* Adds to the four sums of a row from `col` on. */
template <class T> static void add_products(matrices *m, int row, int col) {
    const int chunk = chunk_of<T>;
    four_floats sum, b, products[chunk];
    memcpy(&sum, &m->sum[row][col], sizeof sum);
    for (int first = 0; first < 8 * width_of<T>; first += chunk) {
        for (int k = 0; k < chunk; k++) {
            memcpy(&b, &m->b[first + k][col], sizeof b);
            products[k] = m->a[row][first + k] * b;
        }
        sum = add_chunk(sum, products, chunk, kept_bits_of<T>);
    }
    memcpy(&m->sum[row][col], &sum, sizeof sum);
}

template <class T> static void multiply(warp_exchange &meeting) {
    matrices m;
    gather<T>(meeting, &m);
    for (int row = 0; row < ROWS; row++)
        for (int col = 0; col < COLS; col += 4)
            add_products<T>(&m, row, col);
    for (int lane = 0; lane < 32; lane++) {
        float own[4];
        for (int i = 0; i < 4; i++)
            own[i] = m.sum[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2];
        memcpy(meeting.box[lane], own, sizeof own);
    }
}

static const uint32_t ALL_LANES = 0xffffffffu;

/* These instructions are undefined unless the whole warp executes them. */
const warp_exchange &exchange_all(const site &where, const void *input, size_t bytes,
                                  void (*finish)(warp_exchange &)) {
    const warp_exchange &meeting = exchange(where, ALL_LANES, input, bytes, finish);
    if (meeting.participants != ALL_LANES)
        fatal("%s (%s:%d) by lanes 0x%08x only", where.operation, where.file, where.line,
              meeting.participants);
    return meeting;
}

template <class T>
static void mma(const site &where, float (&acc)[4], const uint32_t (&a)[4],
                const uint32_t (&b)[2]) {
    fragments<T> own;
    memcpy(own.acc, acc, sizeof acc);
    memcpy(own.a, a, sizeof a);
    memcpy(own.b, b, sizeof b);
    const warp_exchange &done = exchange_all(where, &own, sizeof own, multiply<T>);
    memcpy(acc, done.box[current_thread->lane], sizeof acc);
}

/* The addresses of all rows: of row r of tile t that of lane 8 t + r. */
static const warp_exchange &exchange_rows(const site &where, const void *shared_row) {
    check_shared_address(where, shared_row, 16);
    return exchange_all(where, &shared_row, sizeof shared_row, nullptr);
}

static uint16_t element(const warp_exchange &rows, int tile, int row, int col) {
    const char *address = read_lane<const char *>(rows, tile * 8 + row);
    uint16_t value;
    memcpy(&value, address + col * 2, sizeof value);
    return value;
}

} // namespace cudasim

using namespace cudasim;

template <>
void mma_m16n8k16<__nv_bfloat16>(float (&acc)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                                 const char *file, int line) {
    mma<__nv_bfloat16>({"mma_m16n8k16", file, line}, acc, a, b);
}
template <>
void mma_m16n8k16<__half>(float (&acc)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                          const char *file, int line) {
    mma<__half>({"mma_m16n8k16", file, line}, acc, a, b);
}

void mma_m16n8k32_e4m3(float (&acc)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                       const char *file, int line) {
    mma<e4m3>({"mma_m16n8k32_e4m3", file, line}, acc, a, b);
}

void ldmatrix_x4(uint32_t (&out)[4], const void *shared_row, const char *file, int line) {
    const warp_exchange &rows = exchange_rows({"ldmatrix_x4", file, line}, shared_row);
    int row = current_thread->lane / 4, col = current_thread->lane % 4 * 2;
    for (int tile = 0; tile < 4; tile++)
        out[tile] = element(rows, tile, row, col) | (uint32_t)element(rows, tile, row, col + 1)
                                                        << 16;
}

void ldmatrix_x4_trans(uint32_t (&out)[4], const void *shared_row, const char *file, int line) {
    const warp_exchange &rows = exchange_rows({"ldmatrix_x4_trans", file, line}, shared_row);
    int row = current_thread->lane % 4 * 2, col = current_thread->lane / 4;
    for (int tile = 0; tile < 4; tile++)
        out[tile] = element(rows, tile, row, col) | (uint32_t)element(rows, tile, row + 1, col)
                                                        << 16;
}
