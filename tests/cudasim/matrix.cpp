/* Tensor-core instructions. Operand layouts: kernels/cuda/device_ptx.cuh. The last lane to arrive
 * computes for the whole warp. */
#include "cudasim/matrix.h"

#include "cudasim/thread.h"
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

/* What a lane brings to a product; the low halves of a register hold the lower index. */
template <class T> struct fragments {
    T a[4][2];
    T b[2][2];
};

/* The sum over k in order, in float. A card sums in an order and to a precision of its own. */
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

template <class T>
static void mma(float (&acc)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    uint32_t operands[6] = {a[0], a[1], a[2], a[3], b[0], b[1]};
    const warp_exchange &done = exchange({"mma_m16n8k16", "kernel", 0}, 0xffffffffu, operands,
                                         sizeof operands, multiply<T>);
    float product[4];
    memcpy(product, done.box[current_thread->lane], sizeof product);
    for (int i = 0; i < 4; i++)
        acc[i] += product[i];
}

static const warp_exchange &exchange_rows(const char *operation, const void *shared_row) {
    check_shared_address(operation, shared_row);
    return exchange({operation, "kernel", 0}, 0xffffffffu, &shared_row, sizeof shared_row);
}

} // namespace cudasim

template <>
void mma_m16n8k16<__nv_bfloat16>(float (&acc)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    cudasim::mma<__nv_bfloat16>(acc, a, b);
}
template <>
void mma_m16n8k16<__half>(float (&acc)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    cudasim::mma<__half>(acc, a, b);
}

void ldmatrix_x4(uint32_t (&out)[4], const void *shared_row) {
    const cudasim::warp_exchange &rows = cudasim::exchange_rows("ldmatrix_x4", shared_row);
    int lane = cudasim::current_thread->lane;
    for (int tile = 0; tile < 4; tile++) {
        const char *row = cudasim::read_lane<const char *>(rows, tile * 8 + lane / 4);
        memcpy(&out[tile], row + lane % 4 * 4, 4);
    }
}

void ldmatrix_x4_trans(uint32_t (&out)[4], const void *shared_row) {
    const cudasim::warp_exchange &rows = cudasim::exchange_rows("ldmatrix_x4_trans", shared_row);
    int lane = cudasim::current_thread->lane;
    for (int tile = 0; tile < 4; tile++) {
        uint16_t pair[2];
        for (int i = 0; i < 2; i++) {
            int source = tile * 8 + lane % 4 * 2 + i;
            const char *row = cudasim::read_lane<const char *>(rows, source);
            memcpy(&pair[i], row + lane / 4 * 2, 2);
        }
        memcpy(&out[tile], pair, 4);
    }
}
