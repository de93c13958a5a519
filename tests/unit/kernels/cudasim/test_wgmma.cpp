/* wgmma against its definition in the PTX ISA, and kernels with a fault each. */
#include "sim_test.h"
#include "sum_definition.h"

#include <stdlib.h>

static const int NUM_THREADS = 128, ROWS = 64, INNER = 16;
static const int B_AT = 16 << 10, SHARED_BYTES = 48 << 10;

enum fault {
    NO_FAULT,
    NO_WGMMA_FENCE,
    NO_PROXY_FENCE,
    STORE_AFTER_PROXY_FENCE,
    COPY_IN_FLIGHT,
    SUMS_READ_EARLY,
    SUMS_CHANGED,
    SUMS_CHANGED_BETWEEN,
    A_CHANGED,
    SHARED_CHANGED,
    NO_COMMIT,
    NO_WAIT,
    WARP_MISSING,
    WARP_WITH_ANOTHER,
    LANE_WITH_ANOTHER,
    ANOTHER_SHAPE,
    WITHIN_PATTERN,
    OUT_OF_BOUNDS,
};

/* How B, and A if it is there, lie in shared memory. */
struct layout {
    int swizzle; /* bytes */
    bool is_b_transposed, is_a_shared;
    int shift; /* 16-byte columns that a matrix which is not transposed begins with */
};

static float decode(__nv_bfloat16 x) {
    return __bfloat162float(x);
}
static float decode(__half x) {
    return __half2float(x);
}
static void encode(float value, __nv_bfloat16 *out) {
    *out = __float2bfloat16_rn(value);
}
static void encode(float value, __half *out) {
    *out = __float2half_rn(value);
}

/* Byte offsets between 8 rows and between patterns, with gaps; one that is not in use is odd. */
static int stride_of(const layout &l) {
    return 16 * l.swizzle;
}
static int leading_of(const layout &l) {
    return l.is_b_transposed ? 40 * l.swizzle : 48;
}

/* Element (row, column) from the matrix' start on: the 16-byte columns of a row of `swizzle` bytes
 * are exchanged by the row's number, which of them by how many rows have 128 bytes. */
static int place(const layout &l, bool is_transposed, int row, int column) {
    const int rows_together = 128 / l.swizzle, width = l.swizzle / 16;
    int chunk = column / 8 + (is_transposed ? 0 : l.shift), panel = 0;
    if (is_transposed) {
        panel = chunk / width;
        chunk %= width;
    }
    chunk ^= row % 8 / rows_together;
    return panel * leading_of(l) + row / 8 * stride_of(l) + row % 8 * l.swizzle + chunk * 16 +
           column % 8 * 2;
}

/* Puts [rows][columns] where the layout has them. */
template <class T>
static void put(const layout &l, bool is_transposed, unsigned char *to, const T *from, int rows,
                int columns) {
    for (int i = (int)threadIdx.x; i < rows * columns; i += NUM_THREADS)
        memcpy(to + place(l, is_transposed, i / columns, i % columns), &from[i], sizeof *from);
}

/* c [64][8 N8] += a [64][16] b; b [8 N8][16], or transposed [16][8 N8]. */
template <class T, int N8, bool TRANSPOSED>
static __global__ void multiply(layout l, fault planted, const T *a, const T *b, float *c) {
    DYNAMIC_SHARED_AT(1024, unsigned char, shared);
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int columns = 8 * N8, first = warp * 16 + lane / 4;
    unsigned char *shared_b = shared + B_AT;
    put(l, false, shared, a, ROWS, INNER);
    if (TRANSPOSED)
        put(l, true, shared_b, b, INNER, columns);
    else
        put(l, false, shared_b, b, columns, INNER);
    uint32_t own[4];
    for (int i = 0; i < 4; i++)
        memcpy(&own[i], &a[(first + i % 2 * 8) * INNER + lane % 4 * 2 + i / 2 * 8], 4);
    float sums[N8][4], others[2][4] = {};
    auto at = [&](int n, int i) {
        return (first + i / 2 * 8) * columns + 8 * n + lane % 4 * 2 + i % 2;
    };
    for (int n = 0; n < N8; n++)
        for (int i = 0; i < 4; i++)
            sums[n][i] = c[at(n, i)];
    if (planted != NO_PROXY_FENCE)
        fence_async_proxy();
    __syncthreads();
    if (planted == STORE_AFTER_PROXY_FENCE && threadIdx.x == 7)
        shared_b[place(l, TRANSPOSED, 1, 1)] ^= 1;
    if (planted == COPY_IN_FLIGHT && threadIdx.x == 0)
        copy_async_16(shared_b + place(l, TRANSPOSED, 0, 0) / 16 * 16, b, true);
    __syncthreads();
    const uint64_t start = (uint64_t)(TRANSPOSED ? 0 : l.shift);
    uint64_t matrix_a = matrix_descriptor(shared, l.swizzle, 48, stride_of(l)) + (uint64_t)l.shift;
    uint64_t matrix_b = matrix_descriptor(shared_b, l.swizzle, leading_of(l), stride_of(l)) + start;
    if (planted == WITHIN_PATTERN)
        matrix_b += 128 / 16;
    if (planted == OUT_OF_BOUNDS)
        matrix_b += (uint64_t)(SHARED_BYTES - B_AT) / 16 - (uint64_t)l.swizzle * 8 / 16;
    if ((planted == WARP_WITH_ANOTHER && warp == 2) || (planted == LANE_WITH_ANOTHER && lane == 5))
        matrix_b += 2;
    if (planted == WARP_MISSING && warp == 3)
        return;
    if (planted != NO_WGMMA_FENCE)
        wgmma_fence(sums);
    if (l.is_a_shared)
        wgmma_m64k16<T, TRANSPOSED>(sums, matrix_a, matrix_b, true);
    else
        wgmma_m64k16<T, TRANSPOSED>(sums, own, matrix_b, true);
    if (planted == SUMS_CHANGED_BETWEEN)
        sums[1][2] = 0;
    if (planted == SUMS_CHANGED_BETWEEN || planted == ANOTHER_SHAPE) {
        if (planted == ANOTHER_SHAPE)
            wgmma_m64k16<T, TRANSPOSED>(reinterpret_cast<float(&)[N8 / 2][4]>(sums), own, matrix_b,
                                        true);
        else
            wgmma_m64k16<T, TRANSPOSED>(sums, own, matrix_b, true);
    }
    if (planted != NO_COMMIT)
        wgmma_commit();
    if (planted == NO_WAIT)
        return;
    if (planted == SUMS_READ_EARLY)
        others[0][0] = sums[0][0];
    if (planted == SUMS_CHANGED)
        sums[0][1] = 3;
    if (planted == A_CHANGED)
        own[3]++;
    if (planted == COPY_IN_FLIGHT)
        copy_async_wait<0>();
    __syncthreads();
    if (planted == SHARED_CHANGED && threadIdx.x == 77)
        shared_b[place(l, TRANSPOSED, 9, 8)]++;
    __syncthreads();
    wgmma_wait<0>(sums);
    if (planted == SUMS_READ_EARLY)
        sums[0][0] = others[0][0];
    for (int n = 0; n < N8; n++)
        for (int i = 0; i < 4; i++)
            c[at(n, i)] = sums[n][i];
}

template <class T> struct matrices {
    std::vector<T> a, b;
    std::vector<float> c;
    int columns;
    bool is_b_transposed;

    template <class Number>
    matrices(int num_columns, bool transposed, Number number)
        : a((size_t)(ROWS * INNER)), b((size_t)(INNER * num_columns)),
          c((size_t)(ROWS * num_columns)), columns(num_columns), is_b_transposed(transposed) {
        for (size_t i = 0; i < a.size(); i++)
            encode(number(i, 1), &a[i]);
        for (size_t i = 0; i < b.size(); i++)
            encode(number(i, 2), &b[i]);
        for (size_t i = 0; i < c.size(); i++)
            c[i] = number(i, 3);
    }
    double product(int row, int column, int k) const {
        const int at = is_b_transposed ? k * columns + column : column * INNER + k;
        return (double)decode(a[(size_t)(row * INNER + k)]) * decode(b[(size_t)at]);
    }
};

static float small_number(size_t i, uint32_t salt) {
    return (float)((int)(i * 37 + salt * 11) % 33 - 16) / 4.0f;
}

template <class T, int N8, bool TRANSPOSED>
static std::vector<float> run(const layout &l, fault planted, const matrices<T> &m) {
    device_array<T> a(m.a), b(m.b);
    device_array<float> c(m.c);
    auto *kernel = multiply<T, N8, TRANSPOSED>;
    LAUNCH(kernel, 1, NUM_THREADS, SHARED_BYTES, nullptr, l, planted, a.get(), b.get(), c.get());
    return c.download();
}

/* Chunks of 16 products, an H100's. */
template <class T, int N8, bool TRANSPOSED, class Number>
static void check_product(const layout &l, Number number) {
    const matrices<T> m(8 * N8, TRANSPOSED, number);
    const std::vector<float> got = run<T, N8, TRANSPOSED>(l, NO_FAULT, m);
    for (int row = 0; row < ROWS; row++)
        for (int column = 0; column < m.columns; column++) {
            double products[INNER];
            for (int k = 0; k < INNER; k++)
                products[k] = m.product(row, column, k);
            const size_t at = (size_t)(row * m.columns + column);
            assert_true(got[at] == define_sum(m.c[at], products, INNER));
        }
}

template <class T, int N8> static void check_layouts() {
    for (int swizzle : {32, 64, 128})
        for (bool is_a_shared : {false, true})
            for (int shift = 0; shift < swizzle / 16; shift += 2) {
                const layout l = {swizzle, false, is_a_shared, shift};
                check_product<T, N8, false>(l, small_number);
            }
    for (int swizzle : {32, 64, 128})
        check_product<T, N8, true>({swizzle, true, false, 0}, small_number);
}

static void test_layouts(void **) {
    in_every_order([] { check_layouts<__nv_bfloat16, 8>(); });
    check_layouts<__nv_bfloat16, 12>();
    check_layouts<__nv_bfloat16, 16>();
    check_layouts<__half, 8>();
}

static void test_sums_are_truncated(void **) {
    check_product<__nv_bfloat16, 8, false>({128, false, false, 0}, varied_number);
    check_product<__half, 8, true>({64, true, false, 0}, varied_number);
}

/* Three products, each of a group, of the same sums but the second: what is there after each wait,
 * NaN as 0. All of A and B is 1. */
static __global__ void chain(float *seen) {
    DYNAMIC_SHARED_AT(1024, __nv_bfloat16, shared);
    for (int i = (int)threadIdx.x; i < 64 * 64; i += NUM_THREADS)
        shared[i] = __float2bfloat16(1);
    const uint32_t one = 0x3f803f80, ones[4] = {one, one, one, one};
    float first[8][4], second[8][4];
    for (int n = 0; n < 8; n++)
        for (int i = 0; i < 4; i++)
            first[n][i] = second[n][i] = 100;
    fence_async_proxy();
    __syncthreads();
    const uint64_t b = matrix_descriptor(shared, 128, 16, 1024);
    auto look = [&](int at) {
        for (float x : {first[3][1], second[7][3]})
            if (threadIdx.x == 99)
                seen[at++] = x == x ? x : 0;
    };
    wgmma_fence(first);
    wgmma_m64k16<__nv_bfloat16, false>(first, ones, b, true);
    wgmma_commit();
    wgmma_m64k16<__nv_bfloat16, false>(second, ones, b, false);
    wgmma_m64k16<__nv_bfloat16, false>(second, ones, b + 2, true);
    wgmma_commit();
    look(0);
    wgmma_wait<1>(first);
    look(2);
    wgmma_fence(first);
    wgmma_m64k16<__nv_bfloat16, false>(first, ones, b, true);
    wgmma_commit();
    wgmma_wait<1>(second);
    look(4);
    wgmma_wait<0>(first);
    look(6);
}

static void test_groups(void **) {
    in_every_order([] {
        device_array<float> seen(8);
        LAUNCH(chain, 1, NUM_THREADS, 8192, nullptr, seen.get());
        const float expected[] = {0, 0, 116, 0, 0, 32, 132, 32};
        const std::vector<float> got = seen.download();
        for (size_t i = 0; i < got.size(); i++)
            assert_true(got[i] == expected[i]);
    });
}

static const layout PLAIN = {128, false, false, 2}, TRANSPOSED_64 = {64, true, false, 0};

static void assert_fault(fault planted, const char *message) {
    for (const char *order : {"forward", "reverse"})
        for (bool is_transposed : {false, true})
            assert_dies(
                [&] {
                    cudasim_set_order(order);
                    if (is_transposed)
                        run<__half, 16, true>(TRANSPOSED_64, planted, {128, true, varied_number});
                    else
                        run<__half, 16, false>(PLAIN, planted, {128, false, varied_number});
                },
                {message});
}

static void test_another_device(void **) {
    assert_dies(
        [] {
            setenv("QUIRE_CUDASIM_CAPABILITY", "89", 1);
            run<__half, 16, false>(PLAIN, NO_FAULT, {128, false, varied_number});
        },
        {"of compute capability 9.0 alone"});
}

static void test_missing_fences(void **) {
    assert_fault(NO_WGMMA_FENCE, "no wgmma_fence after the last wgmma_wait");
    assert_fault(NO_PROXY_FENCE, "shared memory without a fence_async_proxy");
    assert_fault(STORE_AFTER_PROXY_FENCE, "was stored to without a fence_async_proxy after it");
    assert_fault(COPY_IN_FLIGHT, "was stored to without a fence_async_proxy after it");
}

static void test_changes_before_the_wait(void **) {
    assert_fault(SUMS_CHANGED, "registers of its sums were changed before the wait");
    assert_fault(SUMS_CHANGED_BETWEEN, "registers of sums were changed before the product");
    assert_fault(A_CHANGED, "registers of A were changed before the wait");
    assert_fault(SHARED_CHANGED, "shared memory that it reads was changed before the wait");
    assert_fault(ANOTHER_SHAPE, "the sums are those of a product of another shape");
}

static void test_sums_read_early_are_nan(void **) {
    const matrices<__half> m(64, false, varied_number);
    const std::vector<float> got = run<__half, 8, false>(PLAIN, SUMS_READ_EARLY, m);
    assert_true(got[0] != got[0] && got[1] == got[1]);
}

static void test_missing_waits(void **) {
    assert_fault(NO_COMMIT, "the sums asked for are not waited for");
    assert_fault(NO_WAIT, "was waited for");
}

static void test_warps_that_differ(void **) {
    for (const char *order : {"forward", "reverse"})
        assert_dies(
            [&] {
                cudasim_set_order(order);
                run<__half, 16, false>(PLAIN, WARP_MISSING, {128, false, varied_number});
            },
            {"warp 3 of the warpgroup is not there",
             "the warpgroup has begun a product without it"});
    assert_fault(WARP_WITH_ANOTHER, "another warp of the warpgroup begins another product");
    assert_fault(LANE_WITH_ANOTHER, "lanes with different descriptors");
}

static void test_places(void **) {
    assert_fault(WITHIN_PATTERN, "begins within the pattern of its swizzle");
    assert_fault(OUT_OF_BOUNDS, "of dynamic shared memory at 0x");
}

int main() {
    setenv("QUIRE_CUDASIM_CAPABILITY", "90", 1);
    const CMUnitTest tests[] = {
        cmocka_unit_test(test_another_device), /* the first: the environment is read once */
        cmocka_unit_test(test_layouts),
        cmocka_unit_test(test_sums_are_truncated),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_missing_fences),
        cmocka_unit_test(test_changes_before_the_wait),
        cmocka_unit_test(test_sums_read_early_are_nan),
        cmocka_unit_test(test_missing_waits),
        cmocka_unit_test(test_warps_that_differ),
        cmocka_unit_test(test_places),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
