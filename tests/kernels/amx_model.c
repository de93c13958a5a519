#include "tests/kernels/amx_model.h"

#include "config/base/check.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define NUM_TILES 8
#define MAX_ROWS 16
#define MAX_ROW_BYTES 64

static _Thread_local struct {
    int is_configured;
    struct tile {
        int rows, row_bytes;
        uint8_t data[MAX_ROWS][MAX_ROW_BYTES];
    } tiles[NUM_TILES];
} state;

void amx_model_configure(const void *config) {
    const uint8_t *bytes = config;
    CHECK(bytes[0] == 1 && bytes[1] == 0); /* palette, start row */
    for (int i = 2; i < 16; i++)
        CHECK(bytes[i] == 0);
    memset(&state, 0, sizeof(state));
    state.is_configured = 1;
    for (int t = 0; t < 16; t++) {
        uint16_t row_bytes;
        memcpy(&row_bytes, bytes + 16 + 2 * t, sizeof(row_bytes));
        int rows = bytes[48 + t];
        CHECK((rows == 0) == (row_bytes == 0));
        CHECK(t < NUM_TILES ? rows <= MAX_ROWS && row_bytes <= MAX_ROW_BYTES : rows == 0);
        if (t < NUM_TILES)
            state.tiles[t].rows = rows, state.tiles[t].row_bytes = row_bytes;
    }
}

void amx_model_release(void) {
    memset(&state, 0, sizeof(state));
}

static struct tile *tile_of(int number) {
    CHECK(state.is_configured && number >= 0 && number < NUM_TILES);
    CHECK(state.tiles[number].rows > 0);
    return &state.tiles[number];
}

void amx_model_zero(int tile) {
    memset(tile_of(tile)->data, 0, sizeof(tile_of(tile)->data));
}

void amx_model_load(int tile, const void *base, ptrdiff_t stride) {
    struct tile *t = tile_of(tile);
    amx_model_zero(tile);
    for (int r = 0; r < t->rows; r++)
        memcpy(t->data[r], (const char *)base + r * stride, (size_t)t->row_bytes);
}

void amx_model_store(int tile, void *base, ptrdiff_t stride) {
    const struct tile *t = tile_of(tile);
    for (int r = 0; r < t->rows; r++)
        memcpy((char *)base + r * stride, t->data[r], (size_t)t->row_bytes);
}

/* C is m x n, A is m x k, B is k x n, in items of four bytes. */
static void check_shapes(int c, int a, int b) {
    CHECK(c != a && c != b && a != b);
    CHECK(tile_of(a)->rows == tile_of(c)->rows && tile_of(b)->row_bytes == tile_of(c)->row_bytes);
    CHECK(tile_of(a)->row_bytes / 4 == tile_of(b)->rows);
    CHECK(tile_of(a)->row_bytes % 4 == 0 && tile_of(b)->row_bytes % 4 == 0);
}

void amx_model_dot_bytes(int c, int a, int b) {
    check_shapes(c, a, b);
    struct tile *sums = tile_of(c);
    const struct tile *left = tile_of(a), *right = tile_of(b);
    for (int m = 0; m < sums->rows; m++)
        for (int n = 0; n < sums->row_bytes / 4; n++) {
            uint32_t sum;
            memcpy(&sum, &sums->data[m][4 * n], sizeof(sum));
            for (int k = 0; k < right->rows; k++)
                for (int i = 0; i < 4; i++)
                    sum += (uint32_t)((int8_t)left->data[m][4 * k + i] *
                                      (int)right->data[k][4 * n + i]);
            memcpy(&sums->data[m][4 * n], &sum, sizeof(sum));
        }
}

static float flush(float x) {
    return fabsf(x) < FLT_MIN ? copysignf(0, x) : x;
}

static float bf16_at(const uint8_t *at) {
    uint16_t half;
    memcpy(&half, at, sizeof(half));
    uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof(value));
    return flush(value);
}

void amx_model_dot_bf16(int c, int a, int b) {
    check_shapes(c, a, b);
    struct tile *sums = tile_of(c);
    const struct tile *left = tile_of(a), *right = tile_of(b);
    for (int m = 0; m < sums->rows; m++)
        for (int n = 0; n < sums->row_bytes / 4; n++) {
            float sum, apart[2] = {0, 0};
            for (int k = 0; k < right->rows; k++)
                for (int i = 0; i < 2; i++)
                    apart[i] = flush(fmaf(bf16_at(&left->data[m][4 * k + 2 * i]),
                                          bf16_at(&right->data[k][4 * n + 2 * i]), apart[i]));
            memcpy(&sum, &sums->data[m][4 * n], sizeof(sum));
            sum = flush(flush(sum) + flush(apart[0] + apart[1]));
            memcpy(&sums->data[m][4 * n], &sum, sizeof(sum));
        }
}
