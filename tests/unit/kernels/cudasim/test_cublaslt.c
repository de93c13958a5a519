/* The simulated cuBLASLt: right products, and every mistake in a description refused. */
#include "cublasLt.h"
#include "cudasim/products.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "sum_definition.h"

/* D [M, N] = A^T [M, K] B [K, N], the form the backend uses: column major, A [K, M]. */
#define M 24
#define N 5
#define K 40
#define MAX_ITEMS 4096

struct layout_numbers {
    cudaDataType type;
    uint64_t rows, cols;
    int64_t ld;
};

/* Everything a call says; a test takes a right one and spoils one thing. */
struct call {
    struct layout_numbers a_numbers, b_numbers, c_numbers, d_numbers;
    int32_t trans_a, trans_b, bias_type;
    uint32_t epilogue, reductions, alignment;
    uint64_t max_workspace;
    int32_t scale_modes[2];
    const char *scales[2]; /* device; NULL: none */
    size_t workspace_bytes;
    int a_offset, d_offset, workspace_offset, bias_offset; /* bytes */
    float alpha, beta;
    bool no_bias, garbage_operation;
    char *a, *b, *d, *bias, *workspace; /* device */
    cublasLtHandle_t handle;
    cublasLtMatmulDescOpaque_t operation;
    cublasLtMatrixLayoutOpaque_t a_layout, b_layout, c_layout, d_layout;
    cublasLtMatmulHeuristicResult_t result;
};

static int setup(void **state) {
    struct call *call = calloc(1, sizeof(*call));
    assert_non_null(call);
    *call = (struct call){.a_numbers = {CUDA_R_16BF, K, M, K},
                          .b_numbers = {CUDA_R_16BF, K, N, K},
                          .c_numbers = {CUDA_R_16BF, M, N, M},
                          .d_numbers = {CUDA_R_16BF, M, N, M},
                          .trans_a = CUBLAS_OP_T,
                          .bias_type = -1,
                          .epilogue = CUBLASLT_EPILOGUE_DEFAULT,
                          .reductions = CUBLASLT_REDUCTION_SCHEME_NONE,
                          .alignment = 16,
                          .alpha = 1.0F};
    char **arrays[] = {&call->a, &call->b, &call->d, &call->bias, &call->workspace};
    for (size_t i = 0; i < sizeof(arrays) / sizeof(arrays[0]); i++) {
        assert_int_equal(cudaMalloc((void **)arrays[i], 4 * MAX_ITEMS), cudaSuccess);
        assert_int_equal(cudaMemset(*arrays[i], 0, 4 * MAX_ITEMS), cudaSuccess);
    }
    assert_int_equal(cublasLtCreate(&call->handle), CUBLAS_STATUS_SUCCESS);
    *state = call;
    return 0;
}

static int teardown(void **state) {
    struct call *call = *state;
    assert_int_equal(cublasLtDestroy(call->handle), CUBLAS_STATUS_SUCCESS);
    char *const arrays[] = {call->a, call->b, call->d, call->bias, call->workspace};
    for (size_t i = 0; i < sizeof(arrays) / sizeof(arrays[0]); i++)
        assert_int_equal(cudaFree(arrays[i]), cudaSuccess);
    free(call);
    return 0;
}

#define TRY(call)                                                                                  \
    do {                                                                                           \
        cublasStatus_t status = call;                                                              \
        if (status != CUBLAS_STATUS_SUCCESS)                                                       \
            return status;                                                                         \
    } while (0)

static cublasStatus_t init_layout(cublasLtMatrixLayout_t layout, const struct layout_numbers *n) {
    return cublasLtMatrixLayoutInit(layout, n->type, n->rows, n->cols, n->ld);
}

static cublasStatus_t init_operation(struct call *call) {
    cublasLtMatmulDesc_t operation = &call->operation;
    const void *bias = call->no_bias ? NULL : call->bias + call->bias_offset;
    memset(operation, 0x5a, sizeof(*operation));
    if (!call->garbage_operation)
        TRY(cublasLtMatmulDescInit(operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    TRY(cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_TRANSA, &call->trans_a, 4));
    TRY(cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_TRANSB, &call->trans_b, 4));
    TRY(cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_EPILOGUE, &call->epilogue,
                                       4));
    TRY(cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE,
                                       &call->bias_type, 4));
    for (int i = 0; i < 2; i++) {
        TRY(cublasLtMatmulDescSetAttribute(operation,
                                           i == 0 ? CUBLASLT_MATMUL_DESC_A_SCALE_MODE
                                                  : CUBLASLT_MATMUL_DESC_B_SCALE_MODE,
                                           &call->scale_modes[i], 4));
        TRY(cublasLtMatmulDescSetAttribute(operation,
                                           i == 0 ? CUBLASLT_MATMUL_DESC_A_SCALE_POINTER
                                                  : CUBLASLT_MATMUL_DESC_B_SCALE_POINTER,
                                           &call->scales[i], sizeof(call->scales[i])));
    }
    return cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
                                          sizeof(bias));
}

static cublasStatus_t describe(struct call *call) {
    TRY(init_operation(call));
    TRY(init_layout(&call->a_layout, &call->a_numbers));
    TRY(init_layout(&call->b_layout, &call->b_numbers));
    TRY(init_layout(&call->c_layout, &call->c_numbers));
    return init_layout(&call->d_layout, &call->d_numbers);
}

static cublasStatus_t choose(struct call *call) {
    cublasLtMatmulPreferenceOpaque_t preference;
    int num_results = 0;
    TRY(cublasLtMatmulPreferenceInit(&preference));
    TRY(cublasLtMatmulPreferenceSetAttribute(&preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                             &call->max_workspace, 8));
    TRY(cublasLtMatmulPreferenceSetAttribute(
        &preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &call->reductions, 4));
    for (int i = CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES;
         i <= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES; i++)
        TRY(cublasLtMatmulPreferenceSetAttribute(
            &preference, (cublasLtMatmulPreferenceAttributes_t)i, &call->alignment, 4));
    return cublasLtMatmulAlgoGetHeuristic(call->handle, &call->operation, &call->a_layout,
                                          &call->b_layout, &call->c_layout, &call->d_layout,
                                          &preference, 1, &call->result, &num_results);
}

static cublasStatus_t multiply(struct call *call) {
    void *d = call->d + call->d_offset;
    return cublasLtMatmul(call->handle, &call->operation, &call->alpha, call->a + call->a_offset,
                          &call->a_layout, call->b, &call->b_layout, &call->beta, d,
                          &call->c_layout, d, &call->d_layout, &call->result.algo,
                          call->workspace + call->workspace_offset, call->workspace_bytes, NULL);
}

static cublasStatus_t run(struct call *call) {
    TRY(describe(call));
    TRY(choose(call));
    TRY(multiply(call));
    assert_int_equal(cudaDeviceSynchronize(), cudaSuccess);
    return CUBLAS_STATUS_SUCCESS;
}

static void test_a_right_call_succeeds(void **state) {
    assert_int_equal(run(*state), CUBLAS_STATUS_SUCCESS);
}

static void expect(const struct call *right, void (*spoil)(struct call *call),
                   cublasStatus_t expected) {
    struct call call = *right;
    spoil(&call);
    assert_int_equal(run(&call), expected);
}

#define SPOIL(name, ...)                                                                           \
    static void name(struct call *call) {                                                          \
        __VA_ARGS__;                                                                               \
    }
SPOIL(short_ld, call->a_numbers.ld = K - 1)
SPOIL(long_k, call->b_numbers.rows = K + 8, call->b_numbers.ld = K + 8)
SPOIL(more_rows_of_c, call->c_numbers.rows = M + 1, call->c_numbers.ld = M + 1)
SPOIL(fewer_columns_of_d, call->d_numbers.cols = N - 1)
SPOIL(empty, call->d_numbers.cols = 0)
SPOIL(not_transposed, call->trans_a = CUBLAS_OP_N)
SPOIL(both_transposed, call->trans_b = CUBLAS_OP_T)
SPOIL(unknown_operation, call->trans_a = 7)
SPOIL(unknown_epilogue, call->epilogue = 2)
SPOIL(unknown_type, call->a_numbers.type = (cudaDataType)3)
SPOIL(c_of_another_type, call->c_numbers.type = CUDA_R_32F)
SPOIL(bias_missing, call->epilogue = CUBLASLT_EPILOGUE_BIAS, call->no_bias = true)
SPOIL(bias_of_another_type, call->epilogue = CUBLASLT_EPILOGUE_BIAS, call->bias_type = CUDA_R_32F)
SPOIL(bias_misaligned, call->epilogue = CUBLASLT_EPILOGUE_BIAS, call->bias_offset = 2)
SPOIL(operation_not_initialised, call->garbage_operation = true)
SPOIL(a_misaligned, call->a_offset = 2)
SPOIL(d_misaligned, call->d_offset = 8)
SPOIL(odd_alignment, call->alignment = 12)
SPOIL(workspace_misaligned, call->workspace_offset = 16)
SPOIL(b_of_another_type, call->b_numbers.type = CUDA_R_16F)
SPOIL(float_operands, call->a_numbers.type = CUDA_R_32F, call->b_numbers.type = CUDA_R_32F)
SPOIL(d_of_the_other_half, call->c_numbers.type = CUDA_R_16F, call->d_numbers.type = CUDA_R_16F)
SPOIL(c_of_another_ld, call->c_numbers.ld = M + 8)

static void test_every_mistake_is_refused(void **state) {
    static void (*const invalid[])(struct call * call) = {
        short_ld,
        long_k,
        more_rows_of_c,
        fewer_columns_of_d,
        empty,
        not_transposed,
        both_transposed,
        unknown_operation,
        unknown_epilogue,
        unknown_type,
        c_of_another_type,
        bias_missing,
        bias_misaligned,
        a_misaligned,
        bias_of_another_type,
        operation_not_initialised,
        d_misaligned,
        odd_alignment,
        workspace_misaligned,
    };
    static void (*const unsupported[])(struct call * call) = {
        b_of_another_type,
        float_operands,
        d_of_the_other_half,
        c_of_another_ld,
    };
    for (size_t i = 0; i < sizeof(invalid) / sizeof(invalid[0]); i++)
        expect(*state, invalid[i], CUBLAS_STATUS_INVALID_VALUE);
    for (size_t i = 0; i < sizeof(unsupported) / sizeof(unsupported[0]); i++)
        expect(*state, unsupported[i], CUBLAS_STATUS_NOT_SUPPORTED);
}

static void test_attributes_of_another_size_are_refused(void **state) {
    struct call *call = *state;
    uint64_t wide = 1;
    int32_t splits;
    size_t bytes;
    assert_int_equal(run(call), CUBLAS_STATUS_SUCCESS);
    assert_int_equal(cublasLtMatmulDescSetAttribute(&call->operation, CUBLASLT_MATMUL_DESC_TRANSA,
                                                    &wide, sizeof(wide)),
                     CUBLAS_STATUS_INVALID_VALUE);
    cublasLtMatmulPreferenceOpaque_t preference;
    assert_int_equal(cublasLtMatmulPreferenceInit(&preference), CUBLAS_STATUS_SUCCESS);
    assert_int_equal(cublasLtMatmulPreferenceSetAttribute(&preference,
                                                          CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                          &splits, sizeof(splits)),
                     CUBLAS_STATUS_INVALID_VALUE);
    assert_int_equal(cublasLtMatmulAlgoConfigGetAttribute(
                         &call->result.algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &wide, 8, &bytes),
                     CUBLAS_STATUS_INVALID_VALUE);
    assert_int_equal(cublasLtMatmulAlgoConfigGetAttribute(
                         &call->result.algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &splits, 4, &bytes),
                     CUBLAS_STATUS_SUCCESS);
    assert_int_equal(splits, 1);
    assert_int_equal(bytes, 4);
}

/* Workspace is needed where K is split, and must be as large as was said. */
static void test_workspace_is_needed_for_split_sums(void **state) {
    struct call *call = *state;
    call->reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    call->max_workspace = 4 * MAX_ITEMS;
    assert_int_equal(run(call), CUBLAS_STATUS_INVALID_VALUE);
    assert_true(call->result.workspaceSize > 0);
    call->workspace_bytes = call->result.workspaceSize - 1;
    assert_int_equal(multiply(call), CUBLAS_STATUS_INVALID_VALUE);
    call->workspace_bytes = call->result.workspaceSize;
    assert_int_equal(multiply(call), CUBLAS_STATUS_SUCCESS);
    assert_int_equal(cudaDeviceSynchronize(), cudaSuccess);
}

/* An algorithm is good for another number of columns, not for another kind of product. */
static void test_algorithms_are_checked_against_the_product(void **state) {
    struct call *call = *state;
    assert_int_equal(run(call), CUBLAS_STATUS_SUCCESS);
    call->b_numbers.cols = call->c_numbers.cols = call->d_numbers.cols = N + 9;
    assert_int_equal(describe(call), CUBLAS_STATUS_SUCCESS);
    assert_int_equal(multiply(call), CUBLAS_STATUS_SUCCESS);
    call->c_numbers.type = call->d_numbers.type = CUDA_R_32F;
    assert_int_equal(describe(call), CUBLAS_STATUS_SUCCESS);
    assert_int_equal(multiply(call), CUBLAS_STATUS_INVALID_VALUE);
    call->c_numbers.type = call->d_numbers.type = CUDA_R_16BF;
    call->epilogue = CUBLASLT_EPILOGUE_BIAS;
    assert_int_equal(describe(call), CUBLAS_STATUS_SUCCESS);
    assert_int_equal(multiply(call), CUBLAS_STATUS_INVALID_VALUE);
}

/* Small integers: exact in every type and order of summation. */
static float a_value(size_t i) {
    return (float)(int)(i * 7 % 5) - 2.0F;
}

static float b_value(size_t i) {
    return (float)(int)(i * 3 % 7) - 3.0F;
}

/* 16-bit forms of integers of magnitude below 256, and back. */
static uint16_t half_bits(cudaDataType type, float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    if (type == CUDA_R_16BF)
        return (uint16_t)(bits >> 16);
    return value == 0.0F
               ? 0
               : (uint16_t)((bits >> 16 & 0x8000) | (((bits & 0x7fffffff) >> 13) - (112U << 10)));
}

static void put(char *device, cudaDataType type, float (*value_of)(size_t), size_t n) {
    uint16_t halves[MAX_ITEMS];
    float floats[MAX_ITEMS];
    for (size_t i = 0; i < n; i++) {
        floats[i] = value_of(i);
        halves[i] = half_bits(type, floats[i]);
    }
    bool wide = type == CUDA_R_32F;
    assert_int_equal(cudaMemcpy(device, wide ? (void *)floats : (void *)halves, n * (wide ? 4 : 2),
                                cudaMemcpyHostToDevice),
                     cudaSuccess);
}

static void check_product(const struct call *call, cudaDataType type, bool biased) {
    uint16_t halves[M * N];
    float floats[M * N];
    bool wide = type == CUDA_R_32F;
    assert_int_equal(cudaMemcpy(wide ? (void *)floats : (void *)halves, call->d,
                                sizeof(float) * M * N / (wide ? 1 : 2), cudaMemcpyDeviceToHost),
                     cudaSuccess);
    for (size_t i = 0; i < M; i++)
        for (size_t j = 0; j < N; j++) {
            float sum = biased ? a_value(i) : 0.0F;
            if (call->beta != 0.0F)
                sum += call->beta * b_value(j * M + i);
            for (size_t k = 0; k < K; k++)
                sum += a_value(i * K + k) * b_value(j * K + k);
            if (wide)
                assert_true(floats[j * M + i] == sum);
            else
                assert_int_equal(halves[j * M + i], half_bits(type, sum));
        }
}

static void test_products_are_right(void **state) {
    static const cudaDataType types[][2] = {{CUDA_R_16BF, CUDA_R_16BF},
                                            {CUDA_R_16BF, CUDA_R_32F},
                                            {CUDA_R_16F, CUDA_R_16F},
                                            {CUDA_R_16F, CUDA_R_32F}};
    for (int variant = 0; variant < 16; variant++) {
        struct call call = *(struct call *)*state;
        cudaDataType in = types[variant / 4][0], out = types[variant / 4][1];
        bool biased = variant % 2 == 1;
        call.beta = variant % 4 >= 2 ? 1.0F : 0.0F;
        call.a_numbers.type = call.b_numbers.type = in;
        call.c_numbers.type = call.d_numbers.type = out;
        call.epilogue = biased ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
        put(call.a, in, a_value, K * M);
        put(call.b, in, b_value, K * N);
        put(call.d, out, b_value, M * N);
        put(call.bias, out, a_value, M);
        assert_int_equal(run(&call), CUBLAS_STATUS_SUCCESS);
        check_product(&call, out, biased);
    }
}

static float varied_a(size_t i) {
    return varied_number(i, 1);
}

static float varied_b(size_t i) {
    return varied_number(i, 2);
}

static size_t chosen(const struct call *call, cublasLtMatmulAlgoConfigAttributes_t attribute) {
    uint32_t value;
    assert_int_equal(cublasLtMatmulAlgoConfigGetAttribute(&call->result.algo, attribute, &value,
                                                          sizeof(value), NULL),
                     CUBLAS_STATUS_SUCCESS);
    return value;
}

/* Of row i and column j, of parts of K, each in chunks. */
static float define_element(size_t i, size_t j, size_t part, size_t chunk) {
    float sum = 0;
    for (size_t begin = 0; begin < K; begin += part) {
        float part_sum = 0;
        size_t end = begin + part < K ? begin + part : K;
        for (size_t first = begin; first < end; first += chunk) {
            double products[K];
            size_t count = first + chunk < end ? chunk : end - first;
            for (size_t k = 0; k < count; k++)
                products[k] = (double)varied_a(i * K + first + k) * varied_b(j * K + first + k);
            part_sum = define_sum(part_sum, products, count);
        }
        sum += part_sum;
    }
    return sum;
}

/* Returns whether every element is what the definition gives. */
static bool is_as_defined(const struct call *call) {
    float actual[M * N];
    size_t splits = chosen(call, CUBLASLT_ALGO_CONFIG_SPLITK_NUM);
    size_t chunk = chosen(call, CUBLASLT_ALGO_CONFIG_TILE_ID);
    assert_int_equal(cudaMemcpy(actual, call->d, sizeof(actual), cudaMemcpyDeviceToHost),
                     cudaSuccess);
    for (size_t at = 0; at < M * N; at++)
        if (actual[at] != define_element(at % M, at / M, (K + splits - 1) / splits, chunk))
            return false;
    return true;
}

static void test_sums_are_truncated(void **state) {
    struct call call = *(struct call *)*state;
    call.c_numbers.type = call.d_numbers.type = CUDA_R_32F;
    put(call.a, CUDA_R_16BF, varied_a, K * M);
    put(call.b, CUDA_R_16BF, varied_b, K * N);
    assert_int_equal(run(&call), CUBLAS_STATUS_SUCCESS);
    assert_true(is_as_defined(&call));
    call.reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    call.max_workspace = call.workspace_bytes = 4 * MAX_ITEMS;
    assert_int_equal(run(&call), CUBLAS_STATUS_SUCCESS);
    assert_true(chosen(&call, CUBLASLT_ALGO_CONFIG_SPLITK_NUM) > 1);
    assert_true(is_as_defined(&call));
    for (int i = 0; i < 2; i++) {
        static const char *const faults[] = {"coarse:all", "wrong:all"};
        assert_int_equal(cudasim_set_products(faults[i]), 0);
        assert_int_equal(run(&call), CUBLAS_STATUS_SUCCESS);
        assert_false(is_as_defined(&call));
    }
    assert_int_equal(cudasim_set_products(""), 0);
}

/* --- Of E4M3 --- */

#define K8 48

static struct call with_e4m3(const struct call *right) {
    struct call call = *right;
    call.a_numbers = (struct layout_numbers){CUDA_R_8F_E4M3, K8, M, K8};
    call.b_numbers = (struct layout_numbers){CUDA_R_8F_E4M3, K8, N, K8};
    call.c_numbers.type = call.d_numbers.type = CUDA_R_32F;
    call.scale_modes[0] = call.scale_modes[1] = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
    call.scales[0] = call.workspace;
    call.scales[1] = call.workspace + M * sizeof(float);
    return call;
}

SPOIL(one_scale_missing, call->scales[1] = NULL)
SPOIL(scales_of_tensors, call->scale_modes[0] = CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F)
SPOIL(odd_k, call->a_numbers.rows = call->b_numbers.rows = K8 - 8)
SPOIL(odd_ld, call->a_numbers.ld = K8 + 8)
SPOIL(odd_m, call->a_numbers.cols = M - 2, call->c_numbers.rows = call->d_numbers.rows = M - 2)
SPOIL(b_of_16_bits, call->b_numbers.type = CUDA_R_16BF)
SPOIL(d_of_8_bits, call->c_numbers.type = call->d_numbers.type = CUDA_R_8F_E4M3)
SPOIL(float_bias, call->epilogue = CUBLASLT_EPILOGUE_BIAS)
SPOIL(a_not_transposed, call->trans_a = CUBLAS_OP_N,
      call->a_numbers = (struct layout_numbers){CUDA_R_8F_E4M3, M + 8, K8, M + 8},
      call->c_numbers.rows = call->d_numbers.rows = M + 8,
      call->c_numbers.ld = call->d_numbers.ld = M + 8)

static void test_what_e4m3_is_refused(void **state) {
    static void (*const unsupported[])(struct call * call) = {
        one_scale_missing, scales_of_tensors, odd_k,      odd_ld,          odd_m,
        b_of_16_bits,      d_of_8_bits,       float_bias, a_not_transposed};
    struct call call = with_e4m3(*state);
    for (size_t i = 0; i < sizeof(unsupported) / sizeof(unsupported[0]); i++)
        expect(&call, unsupported[i], CUBLAS_STATUS_NOT_SUPPORTED);
    call.a_numbers.type = call.b_numbers.type = CUDA_R_16BF;
    assert_int_equal(run(&call), CUBLAS_STATUS_INVALID_VALUE);
}

/* Codes of 0, 1, 2 and 3. */
static uint8_t small_code(size_t i, float *out) {
    static const uint8_t codes[] = {0x00, 0x38, 0x40, 0x44};
    *out = (float)(i * 7 % 4);
    return codes[i * 7 % 4];
}

static void put_codes(char *device, size_t n, float *out) {
    uint8_t codes[MAX_ITEMS];
    for (size_t i = 0; i < n; i++)
        codes[i] = small_code(i + i / K8, &out[i]);
    assert_int_equal(cudaMemcpy(device, codes, n, cudaMemcpyHostToDevice), cudaSuccess);
}

/* Scales of rows of A are 1, 2, 4, .., those of columns of B 1, 3, 5, .. */
static void test_products_of_e4m3(void **state) {
    struct call call = with_e4m3(*state);
    float a[K8 * M], b[K8 * N], scales[M + N], got[M * N];
    put_codes(call.a, K8 * M, a);
    put_codes(call.b, K8 * N, b);
    for (int i = 0; i < M + N; i++)
        scales[i] = i < M ? ldexpf(1, i % 5) : (float)(2 * (i - M) + 1);
    assert_int_equal(cudaMemcpy(call.workspace, scales, sizeof(scales), cudaMemcpyHostToDevice),
                     cudaSuccess);
    assert_int_equal(run(&call), CUBLAS_STATUS_SUCCESS);
    assert_int_equal(cudaMemcpy(got, call.d, sizeof(got), cudaMemcpyDeviceToHost), cudaSuccess);
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) {
            float sum = 0;
            for (int k = 0; k < K8; k++)
                sum += a[i * K8 + k] * b[j * K8 + k];
            assert_true(got[j * M + i] == sum * scales[i] * scales[M + j]);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_right_call_succeeds, setup, teardown),
        cmocka_unit_test_setup_teardown(test_every_mistake_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_attributes_of_another_size_are_refused, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_workspace_is_needed_for_split_sums, setup, teardown),
        cmocka_unit_test_setup_teardown(test_algorithms_are_checked_against_the_product, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_products_are_right, setup, teardown),
        cmocka_unit_test_setup_teardown(test_sums_are_truncated, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_e4m3_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_products_of_e4m3, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
