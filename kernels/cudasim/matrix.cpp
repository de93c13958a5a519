/* Tensor-core instructions. Operand layouts: kernels/cuda/device_ptx.cuh. The last lane to arrive
 * computes for the whole warp. */
#include "cudasim/matrix.h"

#include "fatal.h"
#include "shared_memory.h"

#include <string.h>

namespace cudasim {

const int ROWS = 16, COLS = 8, INNER = 16;

static float decode(__nv_bfloat16 x) {
    return __bfloat162float(x);
}
static float decode(__half x) {
    return __half2float(x);
}

/* Holds what a lane brings to a product; the low halves of a register hold the lower index. */
template <class T> struct fragments {
    T a[4][2];
    T b[2][2];
};

/* The sum over k in order, in float. A GPU sums in an order and to a precision of its own. */
template <class T> static void multiply(warp_exchange &meeting) {
    float a[INNER][ROWS], b[INNER][COLS], product[ROWS][COLS] = {};
    for (int lane = 0; lane < 32; lane++) {
        fragments<T> own;
        memcpy(&own, meeting.box[lane], sizeof own);
        int group = lane / 4, pair = lane % 4 * 2;
        for (int i = 0; i < 4; i++)
            for (int half = 0; half < 2; half++)
                a[pair + half + i / 2 * 8][group + i % 2 * 8] = decode(own.a[i][half]);
        for (int i = 0; i < 2; i++)
            for (int half = 0; half < 2; half++)
                b[pair + half + i * 8][group] = decode(own.b[i][half]);
    }
    for (int row = 0; row < ROWS; row++)
        for (int k = 0; k < INNER; k++)
            for (int col = 0; col < COLS; col++)
                product[row][col] += a[k][row] * b[k][col];
    for (int lane = 0; lane < 32; lane++) {
        float own[4];
        for (int i = 0; i < 4; i++)
            own[i] = product[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2];
        memcpy(meeting.box[lane], own, sizeof own);
    }
}

static const uint32_t ALL_LANES = 0xffffffffu;

/* These instructions are undefined unless the whole warp executes them. */
static const warp_exchange &exchange_all(const site &where, const void *input, size_t bytes,
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
    uint32_t operands[6] = {a[0], a[1], a[2], a[3], b[0], b[1]};
    const warp_exchange &done = exchange_all(where, operands, sizeof operands, multiply<T>);
    float product[4];
    memcpy(product, done.box[current_thread->lane], sizeof product);
    for (int i = 0; i < 4; i++)
        acc[i] += product[i];
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
