/* Tensor-core instructions and asynchronous copies against their definitions in the PTX ISA. */
#include "sim_test.h"
#include "sum_definition.h"

#include <math.h>

/* Small integers and quarters: sums of their products are exact in float. */
static float entry(int i, int salt) {
    return (float)((i * 37 + salt * 11) % 33 - 16) / 4.0f;
}

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

/* a [16][16], b [8][16] (column major), c [16][8]; the fragments are gathered by hand. */
template <class T> __global__ static void multiply(const T *a, const T *b, float *c) {
    int lane = (int)threadIdx.x, group = lane / 4, pair = lane % 4 * 2;
    uint32_t af[4], bf[2];
    float acc[4];
    for (int i = 0; i < 4; i++)
        memcpy(&af[i], &a[(group + i % 2 * 8) * 16 + pair + i / 2 * 8], 4);
    for (int i = 0; i < 2; i++)
        memcpy(&bf[i], &b[group * 16 + pair + i * 8], 4);
    for (int i = 0; i < 4; i++)
        acc[i] = c[(group + i / 2 * 8) * 8 + pair + i % 2];
    mma_m16n8k16<T>(acc, af, bf);
    for (int i = 0; i < 4; i++)
        c[(group + i / 2 * 8) * 8 + pair + i % 2] = acc[i];
}

template <class T> struct factors {
    std::vector<T> a = std::vector<T>(256), b = std::vector<T>(128);
    std::vector<float> c = std::vector<float>(128);
};

/* c's sum of that place, of which products [0, 16) are added by `add`. */
template <class T, class Number, class Add> static void check_multiply(Number number, Add add) {
    factors<T> f;
    auto &[a, b, c] = f;
    for (int i = 0; i < 256; i++)
        encode(number(i, 1), &a[(size_t)i]);
    for (int i = 0; i < 128; i++) {
        encode(number(i, 2), &b[(size_t)i]);
        c[(size_t)i] = number(i, 3);
    }
    device_array<T> device_a(a), device_b(b);
    device_array<float> device_c(c);
    LAUNCH(multiply<T>, 1, 32, 0, nullptr, device_a.get(), device_b.get(), device_c.get());
    std::vector<float> got = device_c.download();
    for (size_t row = 0; row < 16; row++)
        for (size_t col = 0; col < 8; col++) {
            double products[16];
            for (size_t k = 0; k < 16; k++)
                products[k] = (double)decode(a[row * 16 + k]) * decode(b[col * 16 + k]);
            assert_true(got[row * 8 + col] == add(c[row * 8 + col], products));
        }
}

static float add_exactly(float sum, const double (&products)[16]) {
    for (double product : products)
        sum += (float)product;
    return sum;
}

static float add_chunks(float sum, const double (&products)[16]) {
    return define_sum(define_sum(sum, products, 8), products + 8, 8);
}

static void test_mma(void **) {
    in_every_order([] {
        check_multiply<__nv_bfloat16>(entry, add_exactly);
        check_multiply<__half>(entry, add_exactly);
    });
}

/* The last case: each product is less than the last bit that is kept, all together are more. */
static void test_mma_truncates(void **) {
    auto number = [](int i, int salt) { return varied_number((size_t)i, (uint32_t)salt); };
    check_multiply<__nv_bfloat16>(number, add_chunks);
    check_multiply<__half>(number, add_chunks);
    for (float sign : {1.0f, -1.0f})
        check_multiply<__nv_bfloat16>(
            [sign](int, int salt) {
                return salt == 3 ? sign : salt == 1 ? 0x1.fp-13f : sign * 0x1p-12f;
            },
            [sign](float, const double(&)[16]) { return sign; });
}

/* a [16][32], b [8][32] (column major), c [16][8]: codes of E4M3, four to a register. */
__global__ static void multiply_e4m3(const uint8_t *a, const uint8_t *b, float *c) {
    int lane = (int)threadIdx.x, group = lane / 4, four = lane % 4 * 4;
    uint32_t af[4], bf[2];
    float acc[4];
    for (int i = 0; i < 4; i++)
        memcpy(&af[i], &a[(group + i % 2 * 8) * 32 + four + i / 2 * 16], 4);
    for (int i = 0; i < 2; i++)
        memcpy(&bf[i], &b[group * 32 + four + i * 16], 4);
    for (int i = 0; i < 4; i++)
        acc[i] = c[(group + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2];
    mma_m16n8k32_e4m3(acc, af, bf);
    for (int i = 0; i < 4; i++)
        c[(group + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = acc[i];
}

/* S EEEE MMM, bias 7; no infinities, the largest is 448. */
static double e4m3_value(uint8_t code) {
    int exponent = code >> 3 & 15, mantissa = code & 7;
    double magnitude = exponent == 0 ? mantissa * 0x1p-9 : ldexp(8 + mantissa, exponent - 10);
    return (code & 0x7f) == 0x7f ? (double)NAN : code & 0x80 ? -magnitude : magnitude;
}

typedef std::vector<uint8_t> code_list;

static std::vector<float> multiply_codes(const code_list &a, const code_list &b,
                                         const std::vector<float> &c) {
    device_array<uint8_t> device_a(a), device_b(b);
    device_array<float> device_c(c);
    LAUNCH(multiply_e4m3, 1, 32, 0, nullptr, device_a.get(), device_b.get(), device_c.get());
    return device_c.download();
}

/* Sums of 32 products of numbers from 1 to 2 are exact: each code stands where it should. */
static void test_mma_e4m3(void **) {
    in_every_order([] {
        code_list a(512), b(256);
        for (size_t i = 0; i < a.size(); i++)
            a[i] = (uint8_t)((i * 37 + 11) / 4 % 2 << 7 | (0x38 + (i * 29 + i / 32) % 8));
        for (size_t i = 0; i < b.size(); i++)
            b[i] = (uint8_t)((i * 41 + 5) / 8 % 2 << 7 | (0x38 + (i * 13 + i / 32) % 7));
        std::vector<float> got = multiply_codes(a, b, std::vector<float>(128, 0.5f));
        for (size_t row = 0; row < 16; row++)
            for (size_t col = 0; col < 8; col++) {
                double sum = 0.5;
                for (size_t k = 0; k < 32; k++)
                    sum += e4m3_value(a[row * 32 + k]) * e4m3_value(b[col * 32 + k]);
                assert_true(got[row * 8 + col] == sum);
            }
    });
}

/* Every code times 1; and what is less than 2^-13 of the largest is cut off. */
static void test_mma_e4m3_of_codes(void **) {
    for (int code = 0; code < 256; code++) {
        code_list a(512), b(256, 0x38);
        for (size_t row = 0; row < 16; row++)
            a[row * 32 + (size_t)code % 32] = (uint8_t)code;
        float got = multiply_codes(a, b, std::vector<float>(128))[5];
        assert_true((code & 0x7f) == 0x7f ? isnan(got) : got == e4m3_value((uint8_t)code));
    }
    code_list a(512, 0x08), b(256, 0x30); /* 2^-6 / 2 */
    assert_true(multiply_codes(a, b, std::vector<float>(128, 128.0f))[9] == 128.0f);
    assert_true(multiply_codes(a, b, std::vector<float>(128, 32.0f))[9] == 32.25f);
}

/* As of a float: a NaN or an infinity is not lost. */
static void test_mma_of_special_values(void **) {
    for (float special : {INFINITY, -INFINITY})
        check_multiply<__half>(
            [special](int i, int salt) { return salt == 3 && i == 9 ? special : 1.0f; },
            add_exactly);
}

/* Element e of row r of tile t is 1000 t + 10 r + e; rows are 16 bytes, 48 apart. */
__global__ static void load_tiles(uint32_t (*out)[4], uint32_t (*transposed)[4]) {
    DYNAMIC_SHARED(uint16_t, tiles);
    int lane = (int)threadIdx.x;
    uint16_t *row = tiles + lane * 24;
    for (int e = 0; e < 8; e++)
        row[e] = (uint16_t)(1000 * (lane / 8) + 10 * (lane % 8) + e);
    __syncwarp();
    ldmatrix_x4(out[lane], row);
    ldmatrix_x4_trans(transposed[lane], row);
}

static void test_ldmatrix(void **) {
    in_every_order([] {
        uint32_t(*plain)[4], (*transposed)[4];
        device_array<uint32_t> out(2 * 128);
        plain = reinterpret_cast<uint32_t(*)[4]>(out.get());
        transposed = plain + 32;
        LAUNCH(load_tiles, 1, 32, 32 * 48, nullptr, plain, transposed);
        std::vector<uint32_t> got = out.download();
        for (unsigned lane = 0; lane < 32; lane++)
            for (unsigned t = 0; t < 4; t++) {
                unsigned a = lane / 4, b = lane % 4 * 2;
                unsigned low = 1000 * t + 10 * a + b, low_trans = 1000 * t + 10 * b + a;
                assert_int_equal(got[lane * 4 + t], low | (low + 1) << 16);
                assert_int_equal(got[128 + lane * 4 + t], low_trans | (low_trans + 10) << 16);
            }
    });
}

/* Three groups of one copy each, the last of zeros; what is in shared memory after each wait. */
__global__ static void copy_groups(const uint4 *source, uint4 *seen) {
    DYNAMIC_SHARED(uint4, stage);
    for (int i = 0; i < 3; i++) {
        copy_async_16(&stage[i], i < 2 ? &source[i] : nullptr, i < 2);
        copy_async_commit();
    }
    copy_async_wait<2>();
    for (int i = 0; i < 3; i++)
        seen[i] = stage[i];
    copy_async_wait<1>();
    for (int i = 0; i < 3; i++)
        seen[3 + i] = stage[i];
    copy_async_16(&stage[3], &source[1], true);
    copy_async_wait<0>();
    for (int i = 0; i < 4; i++)
        seen[6 + i] = stage[i];
    copy_async_commit();
    copy_async_wait<0>();
    seen[10] = stage[3];
}

static void test_copy_groups(void **) {
    device_array<uint4> source(std::vector<uint4>{{1, 2, 3, 4}, {5, 6, 7, 8}}), seen(11);
    LAUNCH(copy_groups, 1, 1, 64, nullptr, source.get(), seen.get());
    const unsigned absent = 0xffffffffu;
    const unsigned expected[] = {1, absent, absent, 1, 5, absent, 1, 5, 0, absent, 5};
    std::vector<uint4> got = seen.download();
    for (size_t i = 0; i < got.size(); i++)
        assert_int_equal(got[i].x, expected[i]);
    assert_int_equal(got[7].w, 8);
    assert_int_equal(got[8].w, 0);
}

/* Of four words the second and, as zeros, the third. */
__global__ static void copy_words(const unsigned *source, unsigned *seen) {
    DYNAMIC_SHARED(unsigned, stage);
    copy_async_4(&stage[1], source + 1, true);
    copy_async_4(&stage[2], nullptr, false);
    copy_async_commit();
    for (int i = 0; i < 4; i++)
        seen[i] = stage[i];
    copy_async_wait<0>();
    for (int i = 0; i < 4; i++)
        seen[4 + i] = stage[i];
}

static void test_copy_words(void **) {
    device_array<unsigned> source(std::vector<unsigned>{1, 2}), seen(8);
    LAUNCH(copy_words, 1, 1, 16, nullptr, source.get(), seen.get());
    const unsigned absent = 0xffffffffu;
    const unsigned expected[] = {absent, absent, absent, absent, absent, 2, 0, absent};
    std::vector<unsigned> got = seen.download();
    for (size_t i = 0; i < got.size(); i++)
        assert_int_equal(got[i], expected[i]);
}

/* 8 words of weights for a warp, of which one lane of the block reads one again; a row of x, and
 * its first word again. */
static __global__ void reading_kernel(const uint32_t *weights, const uint32_t *x, uint32_t *out) {
    uint32_t sum = load_weights(weights + threadIdx.x % 32 / 4);
    if (threadIdx.x == 5)
        sum += load_weights(weights + 1);
    out[blockIdx.x * 64 + threadIdx.x] = sum + load_global(x + threadIdx.x) + __ldg(x);
}

static __global__ void copying_kernel(const uint32_t *x, uint32_t *out) {
    DYNAMIC_SHARED(uint32_t, shared);
    copy_async_16(shared + threadIdx.x * 4, x + threadIdx.x * 4, threadIdx.x < 3);
    copy_async_commit();
    copy_async_wait<0>();
    out[threadIdx.x] = shared[threadIdx.x * 4];
}

static void test_reads_are_counted(void **) {
    device_array<uint32_t> weights(std::vector<uint32_t>(8, 1)), x(std::vector<uint32_t>(64, 2)),
        out(128);
    in_every_order([&] {
        cudasim_count_reads();
        LAUNCH(reading_kernel, 2, 64, 0, nullptr, weights.get(), x.get(), out.get());
        LAUNCH(copying_kernel, 1, 16, 16 * 16, nullptr, x.get(), out.get());
        ASSERT_CUDA(cudaDeviceSynchronize());
        assert_int_equal(cudasim_bytes_read("reading", nullptr, 0), 4 * 32 + 2 * 4);
        assert_int_equal(cudasim_bytes_read("reading", x.get(), 256), 2 * (256 + 4 + 4));
        assert_int_equal(cudasim_bytes_read("reading", x.get() + 1, 4), 2 * 4);
        assert_int_equal(cudasim_bytes_read("copying", x.get(), 256), 3 * 16);
        assert_int_equal(cudasim_bytes_read("", x.get(), 256), 2 * (256 + 4 + 4) + 3 * 16);
        LAUNCH(copying_kernel, 1, 16, 16 * 16, nullptr, x.get(), out.get());
        ASSERT_CUDA(cudaDeviceSynchronize());
        assert_int_equal(cudasim_bytes_read("copying", x.get(), 256), 3 * 16);
    });
}

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(test_mma),
        cmocka_unit_test(test_mma_truncates),
        cmocka_unit_test(test_mma_of_special_values),
        cmocka_unit_test(test_mma_e4m3),
        cmocka_unit_test(test_mma_e4m3_of_codes),
        cmocka_unit_test(test_ldmatrix),
        cmocka_unit_test(test_copy_groups),
        cmocka_unit_test(test_copy_words),
        cmocka_unit_test(test_reads_are_counted),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
