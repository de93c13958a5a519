/* One row per element type. Quantised types are read through quant_block.h. */
#include "kernels/dtype.h"

#include "config/base/check.h"
#include "kernels/dtype_private.h"
#include "kernels/quant_block.h"

struct dtype_info {
    const char *name;
    size_t block_bytes;
    void (*to_f32)(const uint8_t *src, float *dst, size_t n);            /* NULL: quantised */
    void (*from_f32)(const float *src, uint8_t *dst, size_t num_blocks); /* NULL: read only */
};

static const struct dtype_info dtype_infos[DTYPE_COUNT] = {
    [DTYPE_F32] = {"f32", 4, dtype_convert_f32_to_f32, dtype_convert_f32_from_f32},
    [DTYPE_F16] = {"f16", 2, dtype_convert_f16_to_f32, dtype_convert_f16_from_f32},
    [DTYPE_BF16] = {"bf16", 2, dtype_convert_bf16_to_f32, dtype_convert_bf16_from_f32},
    [DTYPE_Q4_0] = {"q4_0", 18, NULL, dtype_convert_q4_0_from_f32},
    [DTYPE_Q4_1] = {"q4_1", 20, NULL, dtype_convert_q4_1_from_f32},
    [DTYPE_Q8_0] = {"q8_0", 34, NULL, dtype_convert_q8_0_from_f32},
    [DTYPE_Q5_0] = {"q5_0", 22, NULL, NULL},
    [DTYPE_Q5_1] = {"q5_1", 24, NULL, NULL},
    [DTYPE_IQ4_NL] = {"iq4_nl", 18, NULL, NULL},
    [DTYPE_Q2_K] = {"q2_k", 84, NULL, NULL},
    [DTYPE_Q3_K] = {"q3_k", 110, NULL, NULL},
    [DTYPE_Q4_K] = {"q4_k", 144, NULL, NULL},
    [DTYPE_Q5_K] = {"q5_k", 176, NULL, NULL},
    [DTYPE_Q6_K] = {"q6_k", 210, NULL, NULL},
    [DTYPE_MXFP4] = {"mxfp4", 17, NULL, NULL},
    [DTYPE_I4_32] = {"i4_32", 19, NULL, NULL},
    [DTYPE_I4_64] = {"i4_64", 35, NULL, NULL},
    [DTYPE_I4_128] = {"i4_128", 67, NULL, NULL},
    [DTYPE_I8_32] = {"i8_32", 35, NULL, NULL},
    [DTYPE_I8_128] = {"i8_128", 133, NULL, NULL},
    [DTYPE_E4M3_128] = {"fp8_128", 132, NULL, NULL},
    [DTYPE_IQ4_XS] = {"iq4_xs", 136, NULL, NULL},
    [DTYPE_TQ2_0] = {"tq2_0", 66, NULL, NULL},
    [DTYPE_TQ1_0] = {"tq1_0", 54, NULL, NULL},
    [DTYPE_IQ1_S] = {"iq1_s", 50, NULL, NULL},
    [DTYPE_IQ1_M] = {"iq1_m", 56, NULL, NULL},
    [DTYPE_IQ2_XXS] = {"iq2_xxs", 66, NULL, NULL},
    [DTYPE_IQ2_XS] = {"iq2_xs", 74, NULL, NULL},
    [DTYPE_IQ2_S] = {"iq2_s", 82, NULL, NULL},
    [DTYPE_IQ3_XXS] = {"iq3_xxs", 98, NULL, NULL},
    [DTYPE_IQ3_S] = {"iq3_s", 110, NULL, NULL},
};

static const struct dtype_info *info_of(enum dtype dtype) {
    CHECK((unsigned)dtype < DTYPE_COUNT);
    return &dtype_infos[dtype];
}

const char *dtype_name(enum dtype dtype) {
    return info_of(dtype)->name;
}

bool dtype_is_quantised(enum dtype dtype) {
    return info_of(dtype)->to_f32 == NULL;
}

int dtype_block_elements(enum dtype dtype) {
    return dtype_is_quantised(dtype) ? quant_forms[dtype].block_elements : 1;
}

size_t dtype_block_bytes(enum dtype dtype) {
    return info_of(dtype)->block_bytes;
}

static size_t num_blocks_of(enum dtype dtype, size_t n) {
    size_t block_elements = (size_t)dtype_block_elements(dtype);
    CHECK(n % block_elements == 0);
    return n / block_elements;
}

size_t dtype_row_bytes(enum dtype dtype, size_t n) {
    return num_blocks_of(dtype, n) * info_of(dtype)->block_bytes;
}

static void quantised_to_f32(enum dtype dtype, const uint8_t *src, float *dst, size_t num_blocks) {
    size_t block_bytes = dtype_infos[dtype].block_bytes;
    size_t block_elements = (size_t)quant_forms[dtype].block_elements;
    struct quant_block block;
    for (size_t b = 0; b < num_blocks; b++) {
        quant_block_unpack(dtype, src + b * block_bytes, &block);
        quant_block_to_f32(dtype, &block, dst + b * block_elements);
    }
}

void dtype_to_f32(enum dtype dtype, const void *src, float *dst, size_t n) {
    const struct dtype_info *info = info_of(dtype);
    size_t num_blocks = num_blocks_of(dtype, n);
    if (info->to_f32 == NULL)
        quantised_to_f32(dtype, src, dst, num_blocks);
    else
        info->to_f32(src, dst, num_blocks);
}

void dtype_from_f32(enum dtype dtype, const float *src, void *dst, size_t n) {
    const struct dtype_info *info = info_of(dtype);
    CHECK(info->from_f32 != NULL);
    info->from_f32(src, dst, num_blocks_of(dtype, n));
}
