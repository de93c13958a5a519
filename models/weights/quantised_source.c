/* Matrices of quantised checkpoints: codes, scales and zero points in tensors of their own become
 * the row types of kernels/dtype.h. Which tensors there are tells how a matrix is stored; a module
 * that was left out of the quantisation has a plain one and is not found here.
 *
 * Value of a weight: scale * (code - zero point), groups of columns sharing both, or scale * code
 * of FP8. With R rows, C columns, G groups, and n = 32 / bits codes in an I32, the lowest first:
 *
 *   GPTQ   qweight I32 [C/n, R], qzeros I32 [G, R/n], scales [G, R], g_idx I32 [C]: a column's
 * group AWQ    qweight I32 [C, R/n], qzeros I32 [G, R/n], scales [G, R]; of eight codes in a word,
 * that of row 0 is the lowest, then those of 2, 4, 6, 1, 3, 5 and 7 packed weight_packed I32 [R,
 * C/n], weight_scale [R, G], weight_zero_point I32 [R/n, G] or none, weight_g_idx I32 [C] or none
 * (compressed-tensors) int8   weight I8 [R, C], weight_scale [R, G], [R] or one, weight_zero_point
 * I8 alike or none FP8    weight F8_E4M3 [R, C], weight_scale or weight_scale_inv, of a block [R/b,
 * C/b], of a row [R] or one MXFP4  blocks U8 [experts, R, C/32, 16], two codes in a byte, scales U8
 * [experts, R, C/32]
 *
 * (Sources: the layers of AutoGPTQ and AutoAWQ, the compressors of compressed-tensors, and
 * Transformers' integrations/finegrained_fp8.py and mxfp4.py.) Scales of integers become F16, which
 * is exact for F16, and for BF16 from 2^-17 on. Where columns are grouped in the order of
 * activations, the rows are widened to the type of the scales, as the layers that multiply with
 * such weights do. */
#include "models/weights/tensor_source.h"

#include "config/base/numbers.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define UNIT 32 /* codes that are read at a time */
#define FP8_BLOCK 128
#define TOGETHER 8 /* rows: those that share AWQ's words */

/* Which tensor is which; only GPTQ and packed weights have an order of columns. */
enum { CODES, SCALES, ZEROS, ORDER };

static bool is_of_type(const struct tensor_info *tensor, const char *name) {
    return tensor->unsupported != NULL && strcmp(tensor->unsupported->name, name) == 0;
}

static bool is_float(const struct tensor_info *tensor) {
    return tensor->unsupported == NULL && !dtype_is_quantised(tensor->dtype);
}

static bool has_shape(const struct tensor_info *tensor, int64_t rows, int64_t cols) {
    return tensor->num_dims == 2 && tensor->shape[0] == rows && tensor->shape[1] == cols;
}

static bool is_single(const struct tensor_info *tensor) {
    bool single = true;
    for (int i = 0; i < tensor->num_dims; i++)
        single &= tensor->shape[i] == 1;
    return single;
}

static float float_at(const struct tensor_source *source, const uint8_t *const raw[],
                      size_t index) {
    enum dtype dtype = source->tensors[SCALES]->dtype;
    float value;
    dtype_to_f32(dtype, raw[SCALES] + index * dtype_block_bytes(dtype), &value, 1);
    return value;
}

static uint32_t word_at(const uint8_t *raw, size_t index) {
    uint32_t word;
    memcpy(&word, raw + 4 * index, sizeof(word));
    return word;
}

/* --- Integers, as each method stores them --- */

/* The place in a word of an AWQ code whose row is this in eight. */
static const int awq_places[8] = {0, 4, 1, 5, 2, 6, 3, 7};

struct integer_form {
    /* Reads UNIT codes of a row, unsigned, from a column on. */
    void (*codes)(const struct tensor_source *source, const uint8_t *raw, int32_t row, int32_t col,
                  uint8_t *out);
    int32_t (*zero)(const struct tensor_source *source, const uint8_t *raw, int32_t row,
                    int32_t group);
    bool scales_by_row; /* [R, G], else [G, R] */
};

static int32_t bits_of(const struct tensor_source *source) {
    return source->quantization->bits;
}

static int32_t codes_per_word(const struct tensor_source *source) {
    return 32 / bits_of(source);
}

static uint32_t code_mask(const struct tensor_source *source) {
    return (UINT32_C(1) << bits_of(source)) - 1;
}

/* `stride` words from each word of a row to the next. */
static void unpack_words(const struct tensor_source *source, const uint8_t *raw, size_t first,
                         size_t stride, uint8_t *out) {
    int32_t bits = bits_of(source), per_word = codes_per_word(source);
    for (int32_t i = 0; i < UNIT; first += stride) {
        uint32_t word = word_at(raw, first);
        for (int32_t j = 0; j < per_word; j++, i++, word >>= bits)
            out[i] = (uint8_t)(word & code_mask(source));
    }
}

static void gptq_codes(const struct tensor_source *source, const uint8_t *raw, int32_t row,
                       int32_t col, uint8_t *out) {
    size_t rows = (size_t)source->rows;
    unpack_words(source, raw, (size_t)(col / codes_per_word(source)) * rows + (size_t)row, rows,
                 out);
}

static int32_t gptq_zero(const struct tensor_source *source, const uint8_t *raw, int32_t row,
                         int32_t group) {
    int32_t per_word = codes_per_word(source);
    size_t index = (size_t)group * (size_t)(source->rows / per_word) + (size_t)(row / per_word);
    uint32_t zero = word_at(raw, index) >> row % per_word * bits_of(source);
    return (int32_t)((zero + source->quantization->zeros_less_one) & code_mask(source));
}

static uint32_t awq_code(const struct tensor_source *source, const uint8_t *raw, int32_t line,
                         int32_t row) {
    size_t index = (size_t)line * (size_t)(source->rows / 8) + (size_t)(row / 8);
    return word_at(raw, index) >> 4 * awq_places[row % 8] & 15;
}

static void awq_codes(const struct tensor_source *source, const uint8_t *raw, int32_t row,
                      int32_t col, uint8_t *out) {
    const size_t words = (size_t)(source->rows / 8);
    const int shift = 4 * awq_places[row % 8];
    raw += 4 * ((size_t)col * words + (size_t)(row / 8));
    for (int32_t i = 0; i < UNIT; i++)
        out[i] = (uint8_t)(word_at(raw, (size_t)i * words) >> shift & 15);
}

static int32_t awq_zero(const struct tensor_source *source, const uint8_t *raw, int32_t row,
                        int32_t group) {
    return (int32_t)awq_code(source, raw, group, row);
}

static int32_t num_groups(const struct tensor_source *source) {
    return source->cols / source->group_size;
}

static void packed_codes(const struct tensor_source *source, const uint8_t *raw, int32_t row,
                         int32_t col, uint8_t *out) {
    size_t per_word = (size_t)codes_per_word(source), words = (size_t)source->cols / per_word;
    unpack_words(source, raw, (size_t)row * words + (size_t)col / per_word, 1, out);
}

static int32_t packed_zero(const struct tensor_source *source, const uint8_t *raw, int32_t row,
                           int32_t group) {
    int32_t per_word = codes_per_word(source);
    size_t index = (size_t)(row / per_word) * (size_t)num_groups(source) + (size_t)group;
    return (int32_t)(word_at(raw, index) >> row % per_word * bits_of(source) & code_mask(source));
}

static void int8_codes(const struct tensor_source *source, const uint8_t *raw, int32_t row,
                       int32_t col, uint8_t *out) {
    const uint8_t *codes = raw + (size_t)row * (size_t)source->cols + (size_t)col;
    for (int i = 0; i < UNIT; i++)
        out[i] = codes[i] ^ 0x80;
}

static int32_t int8_zero(const struct tensor_source *source, const uint8_t *raw, int32_t row,
                         int32_t group) {
    size_t at = (size_t)row * (size_t)num_groups(source) + (size_t)group;
    return raw[is_single(source->tensors[ZEROS]) ? 0 : at] ^ 0x80;
}

static const struct integer_form gptq_form = {gptq_codes, gptq_zero, false};
static const struct integer_form awq_form = {awq_codes, awq_zero, false};
static const struct integer_form packed_form = {packed_codes, packed_zero, true};
static const struct integer_form int8_form = {int8_codes, int8_zero, true};

/* --- Integers, as rows --- */

static bool has_tensor(const struct tensor_source *source, int which) {
    return source->tensors[which] != NULL;
}

/* Returns NULL, or what is wrong with the scale. */
static const char *write_factor(enum dtype dtype, float scale, uint8_t **out) {
    uint16_t half = f16_from_f32(scale);
    if (!isfinite(scale))
        return "a scale is not a finite number";
    if (dtype == DTYPE_I8_128) {
        memcpy(*out, &scale, sizeof(scale));
        *out += sizeof(scale);
        return NULL;
    }
    if (!isfinite(f16_to_f32(half)))
        return "a scale exceeds 65504";
    memcpy(*out, &half, sizeof(half));
    *out += sizeof(half);
    return NULL;
}

static size_t scale_index(const struct tensor_source *source, const struct integer_form *form,
                          int32_t row, int32_t group) {
    if (is_single(source->tensors[SCALES]))
        return 0;
    return form->scales_by_row ? (size_t)row * (size_t)num_groups(source) + (size_t)group
                               : (size_t)group * (size_t)source->rows + (size_t)row;
}

static int32_t zero_of(const struct tensor_source *source, const uint8_t *const raw[],
                       const struct integer_form *form, int32_t row, int32_t group) {
    return has_tensor(source, ZEROS) ? form->zero(source, raw[ZEROS], row, group)
                                     : 1 << (bits_of(source) - 1);
}

/* One block of a row; *out moves to its end. */
static const char *write_block(const struct tensor_source *source, const uint8_t *const raw[],
                               const struct integer_form *form, int32_t row, int32_t col,
                               uint8_t **out) {
    int32_t group = col / source->group_size, elements = dtype_block_elements(source->dtype);
    float scale = float_at(source, raw, scale_index(source, form, row, group));
    const char *wrong = write_factor(source->dtype, scale, out);
    if (wrong != NULL)
        return wrong;
    if (source->dtype != DTYPE_Q4_0 && source->dtype != DTYPE_Q8_0)
        *(*out)++ = (uint8_t)zero_of(source, raw, form, row, group);
    for (int32_t i = 0; i < elements; i += UNIT) {
        uint8_t codes[UNIT];
        form->codes(source, raw[CODES], row, col + i, codes);
        if (bits_of(source) == 4) {
            for (int k = 0; k < UNIT / 2; k++)
                *(*out)++ = (uint8_t)(codes[k] | codes[k + UNIT / 2] << 4);
            continue;
        }
        for (int k = 0; k < UNIT; k++)
            *(*out)++ = source->dtype == DTYPE_Q8_0 ? codes[k] ^ 0x80 : codes[k];
    }
    return NULL;
}

static const char *check_order(const struct tensor_source *source, const uint8_t *const raw[]) {
    for (int32_t k = 0; k < source->cols; k++) {
        uint32_t group = word_at(raw[ORDER], (size_t)k);
        if (group >= (uint32_t)num_groups(source))
            return "its g_idx names a group that does not exist";
        if (dtype_is_quantised(source->dtype) && group != (uint32_t)(k / source->group_size))
            return "its g_idx is not in order, although desc_act is false";
    }
    return NULL;
}

/* A row of floats, whose columns are in any groups. */
static const char *write_floats(const struct tensor_source *source, const uint8_t *const raw[],
                                const struct integer_form *form, int32_t row, uint8_t *out) {
    for (int32_t col = 0; col < source->cols; col += UNIT) {
        uint8_t codes[UNIT];
        float values[UNIT];
        form->codes(source, raw[CODES], row, col, codes);
        for (int32_t i = 0; i < UNIT; i++) {
            int32_t group = (int32_t)word_at(raw[ORDER], (size_t)(col + i));
            float scale = float_at(source, raw, scale_index(source, form, row, group));
            if (!isfinite(scale))
                return "a scale is not a finite number";
            values[i] = scale * (float)(codes[i] - zero_of(source, raw, form, row, group));
        }
        dtype_from_f32(source->dtype, values, out, UNIT);
        out += dtype_row_bytes(source->dtype, UNIT);
    }
    return NULL;
}

/* At most TOGETHER rows, block by block: where rows share words, these are still in the cache. */
static const char *write_rows(const struct tensor_source *source, const uint8_t *const raw[],
                              const struct integer_form *form, int32_t first_row, int32_t num_rows,
                              uint8_t *out) {
    size_t row_bytes = dtype_row_bytes(source->dtype, (size_t)source->cols);
    int32_t elements = dtype_block_elements(source->dtype);
    uint8_t *dst[TOGETHER];
    const char *wrong = NULL;
    for (int32_t i = 0; i < num_rows; i++)
        dst[i] = out + (size_t)i * row_bytes;
    for (int32_t col = 0; col < source->cols; col += elements)
        for (int32_t i = 0; i < num_rows && wrong == NULL; i++)
            wrong = write_block(source, raw, form, first_row + i, col, &dst[i]);
    return wrong;
}

static const char *assemble_integers(const struct tensor_source *source, const uint8_t *const raw[],
                                     int32_t first_row, int32_t num_rows,
                                     const struct integer_form *form, void *out) {
    const char *wrong = has_tensor(source, ORDER) ? check_order(source, raw) : NULL;
    size_t row_bytes = dtype_row_bytes(source->dtype, (size_t)source->cols);
    bool is_ordered = !dtype_is_quantised(source->dtype);
    int32_t step = is_ordered ? 1 : TOGETHER;
    for (int32_t i = 0; i < num_rows && wrong == NULL; i += step) {
        uint8_t *dst = (uint8_t *)out + (size_t)i * row_bytes;
        wrong = is_ordered ? write_floats(source, raw, form, first_row + i, dst)
                           : write_rows(source, raw, form, first_row + i,
                                        min_int32(TOGETHER, num_rows - i), dst);
    }
    return wrong;
}

#define DEFINE_ASSEMBLE(name)                                                                      \
    static const char *assemble_##name(const struct tensor_source *source,                         \
                                       const uint8_t *const raw[], int32_t first_row,              \
                                       int32_t num_rows, void *out) {                              \
        return assemble_integers(source, raw, first_row, num_rows, &name##_form, out);             \
    }

DEFINE_ASSEMBLE(gptq)
DEFINE_ASSEMBLE(awq)
DEFINE_ASSEMBLE(packed)
DEFINE_ASSEMBLE(int8)

/* --- Finding them --- */

static bool refuse(struct tensor_source *source, int tensor, const char *wrong) {
    source->wrong = wrong;
    source->wrong_tensor = source->tensors[tensor] != NULL ? tensor : CODES;
    return true;
}

static void add_tensor(const struct model *model, struct tensor_place place, const char *suffix,
                       int which, struct tensor_source *out) {
    out->tensors[which] = tensor_names_find(model, place, suffix);
    if (out->tensors[which] != NULL)
        out->num_tensors = which + 1;
}

/* The row type for groups of this many columns: of the largest block that has one scale. */
static enum dtype integer_type(const struct tensor_source *source) {
    int32_t size = source->group_size;
    bool has_zeros = has_tensor(source, ZEROS);
    if (has_tensor(source, ORDER) && !source->quantization->is_in_order && size < source->cols)
        return source->tensors[SCALES]->dtype;
    if (bits_of(source) == 8)
        return size % 128 == 0 ? DTYPE_I8_128 : has_zeros ? DTYPE_I8_32 : DTYPE_Q8_0;
    if (size % 64 != 0)
        return has_zeros ? DTYPE_I4_32 : DTYPE_Q4_0;
    return size % 128 == 0 ? DTYPE_I4_128 : DTYPE_I4_64;
}

/* Sets the sizes and the type; false with `wrong` set if they are those of no such matrix. */
static bool set_sizes(int64_t rows, int64_t cols, struct tensor_source *out) {
    if (rows <= 0 || rows > INT32_MAX || cols <= 0 || cols > INT32_MAX)
        return !refuse(out, CODES, "its shape is that of no matrix");
    out->rows = (int32_t)rows;
    out->cols = (int32_t)cols;
    return true;
}

static bool set_groups(struct tensor_source *out) {
    int32_t group = out->quantization->group_size;
    out->group_size = group > 0 ? group : out->cols;
    if (out->cols % out->group_size != 0 || out->group_size % UNIT != 0)
        return !refuse(out, CODES, "its columns are not whole groups of a multiple of 32");
    out->dtype = integer_type(out);
    return true;
}

/* GPTQ, AWQ, and packed weights: what must be there, of these shapes. */
static bool check_words(struct tensor_source *out, int64_t rows, int64_t cols, bool by_row) {
    const struct tensor_info *scales = out->tensors[SCALES], *zeros = out->tensors[ZEROS];
    const struct tensor_info *order = out->tensors[ORDER];
    if (scales == NULL)
        return refuse(out, CODES, "the tensor with its scales is missing");
    if (zeros == NULL && !by_row)
        return refuse(out, CODES, "the tensor with its zero points is missing");
    if (!is_float(scales))
        return refuse(out, SCALES, "is not of a float type");
    if (!set_sizes(rows, cols, out) || !set_groups(out))
        return true;
    int64_t groups = num_groups(out), per_word = codes_per_word(out);
    if (!has_shape(scales, by_row ? rows : groups, by_row ? groups : rows))
        return refuse(out, SCALES, "its shape is not that of a scale for each row and group");
    if (zeros != NULL &&
        (!is_of_type(zeros, "I32") || rows % per_word != 0 ||
         !has_shape(zeros, by_row ? rows / per_word : groups, by_row ? groups : rows / per_word)))
        return refuse(out, ZEROS, "is not of type I32 with a zero point for each row and group");
    if (order != NULL &&
        (!is_of_type(order, "I32") || order->num_dims != 1 || order->shape[0] != out->cols))
        return refuse(out, ORDER, "is not of type I32 with a group for each column");
    return true;
}

/* Suffixes of the tensors by which a method stores a matrix of words; NULL: it has none such. */
struct word_names {
    const char *codes, *scales, *zeros, *order;
};

/* Returns false when the file has no codes there. */
static bool add_words(const struct model *model, struct tensor_place place,
                      const struct word_names *names, struct tensor_source *out) {
    const char *const suffixes[] = {names->codes, names->scales, names->zeros, names->order};
    for (int i = CODES; i <= ORDER; i++) {
        if (suffixes[i] != NULL)
            add_tensor(model, place, suffixes[i], i, out);
        if (out->tensors[CODES] == NULL)
            return false;
    }
    return true;
}

/* Returns the shape of the tensor of codes; NULL, with what is wrong, if it is not a matrix of
 * words. */
static const int64_t *shape_of_words(struct tensor_source *out) {
    const struct tensor_info *codes = out->tensors[CODES];
    if (is_of_type(codes, "I32") && codes->num_dims == 2)
        return codes->shape;
    refuse(out, CODES, "is not a matrix of type I32");
    return NULL;
}

static bool find_gptq(const struct model *model, struct tensor_place place,
                      struct tensor_source *out) {
    static const struct word_names names = {"qweight", "scales", "qzeros", "g_idx"};
    if (!add_words(model, place, &names, out))
        return false;
    out->assemble = assemble_gptq;
    const int64_t *shape = shape_of_words(out);
    return shape == NULL || check_words(out, shape[1], shape[0] * codes_per_word(out), false);
}

static bool find_awq(const struct model *model, struct tensor_place place,
                     struct tensor_source *out) {
    static const struct word_names names = {"qweight", "scales", "qzeros", NULL};
    if (!add_words(model, place, &names, out))
        return false;
    out->assemble = assemble_awq;
    const int64_t *shape = shape_of_words(out);
    return shape == NULL || check_words(out, shape[1] * 8, shape[0], false);
}

static bool find_packed(const struct model *model, struct tensor_place place,
                        struct tensor_source *out) {
    static const struct word_names names = {"weight_packed", "weight_scale", "weight_zero_point",
                                            "weight_g_idx"};
    if (!add_words(model, place, &names, out))
        return false;
    out->assemble = assemble_packed;
    const int64_t *shape = shape_of_words(out);
    return shape == NULL || check_words(out, shape[0], shape[1] * codes_per_word(out), true);
}

/* --- Bytes: integers and FP8 --- */

static bool is_by_row(const struct tensor_info *tensor, int64_t rows) {
    return (tensor->num_dims == 1 && tensor->shape[0] == rows) || has_shape(tensor, rows, 1);
}

static bool find_int8(struct tensor_source *out) {
    const struct tensor_info *scales = out->tensors[SCALES], *zeros = out->tensors[ZEROS];
    out->assemble = assemble_int8;
    if (bits_of(out) != 8)
        return refuse(out, CODES, "is of type I8, but num_bits is not 8");
    if (!set_groups(out))
        return true;
    if (!is_float(scales) ||
        (!is_single(scales) && !has_shape(scales, out->rows, num_groups(out)) &&
         !(num_groups(out) == 1 && is_by_row(scales, out->rows))))
        return refuse(out, SCALES, "is not of a float type with a scale for each row and group");
    if (zeros != NULL && (!is_of_type(zeros, "I8") ||
                          zeros->bytes * dtype_block_bytes(scales->dtype) != scales->bytes))
        return refuse(out, ZEROS, "is not of type I8 with a zero point for each scale");
    return true;
}

/* Columns that share a scale follow each other in whole blocks of the row type. */
static size_t fp8_scale_index(const struct tensor_source *source, int32_t row, int32_t col) {
    const struct tensor_info *scales = source->tensors[SCALES];
    const struct quantization_config *q = source->quantization;
    if (is_single(scales))
        return 0;
    if (is_by_row(scales, (int64_t)source->rows * source->num_experts))
        return (size_t)row;
    int32_t block_rows = q->group_size > 0 ? 1 : q->block_rows;
    return (size_t)(row / block_rows) * (size_t)scales->shape[1] +
           (size_t)(col / source->group_size);
}

static const char *assemble_fp8(const struct tensor_source *source, const uint8_t *const raw[],
                                int32_t first_row, int32_t num_rows, void *out) {
    uint8_t *dst = out;
    for (int32_t row = first_row; row < first_row + num_rows; row++) {
        const uint8_t *codes = raw[CODES] + (size_t)row * (size_t)source->cols;
        for (int32_t col = 0; col < source->cols; col += FP8_BLOCK) {
            float scale = float_at(source, raw, fp8_scale_index(source, row, col));
            if (!isfinite(scale))
                return "a scale is not a finite number";
            memcpy(dst, &scale, sizeof(scale));
            memcpy(dst + sizeof(scale), codes + col, FP8_BLOCK);
            dst += sizeof(scale) + FP8_BLOCK;
            for (int i = 0; i < FP8_BLOCK; i++)
                if ((codes[col + i] & 0x7f) == 0x7f)
                    return "a weight is NaN";
        }
    }
    return NULL;
}

static bool find_fp8(struct tensor_source *out) {
    const struct tensor_info *scales = out->tensors[SCALES];
    const struct quantization_config *q = out->quantization;
    out->assemble = assemble_fp8;
    out->dtype = DTYPE_E4M3_128;
    if (out->cols % FP8_BLOCK != 0)
        return refuse(out, CODES, "rows of FP8 must be a multiple of 128 columns");
    if (!is_float(scales))
        return refuse(out, SCALES, "is not of a float type");
    if (is_single(scales) || is_by_row(scales, out->rows))
        return true;
    int64_t block_rows = q->group_size > 0 ? 1 : q->block_rows;
    out->group_size = q->group_size > 0 ? q->group_size : q->block_cols;
    if (out->group_size == 0 ||
        !has_shape(scales, (out->rows + block_rows - 1) / block_rows,
                   (out->cols + (int64_t)out->group_size - 1) / out->group_size))
        return refuse(out, SCALES, "its shape is that of no tensor, row or block of the weights");
    return true;
}

static bool find_bytes(const struct model *model, struct tensor_place place,
                       struct tensor_source *out) {
    add_tensor(model, place, "weight", CODES, out);
    const struct tensor_info *codes = out->tensors[CODES];
    if (codes == NULL || (!is_of_type(codes, "I8") && !is_of_type(codes, "F8_E4M3")))
        return false;
    add_tensor(model, place, "weight_scale", SCALES, out);
    if (out->tensors[SCALES] == NULL)
        add_tensor(model, place, "weight_scale_inv", SCALES, out);
    add_tensor(model, place, "weight_zero_point", ZEROS, out);
    if (out->tensors[SCALES] == NULL)
        return refuse(out, CODES, "the tensor with its scales is missing");
    if (codes->num_dims != 2)
        return refuse(out, CODES, "is not a matrix");
    if (!set_sizes(codes->shape[0], codes->shape[1], out))
        return true;
    return is_of_type(codes, "I8") ? find_int8(out) : find_fp8(out);
}

/* --- MXFP4, as gpt-oss has it: all experts in one, gate's and up's rows alternate --- */

static const char *assemble_mxfp4(const struct tensor_source *source, const uint8_t *const raw[],
                                  int32_t first_row, int32_t num_rows, void *out) {
    size_t blocks = (size_t)source->cols / UNIT;
    uint8_t *dst = out;
    for (int32_t row = first_row; row < first_row + num_rows; row++) {
        size_t first = (size_t)tensor_source_file_row(source, row) * blocks;
        for (size_t b = first; b < first + blocks; b++) {
            const uint8_t *codes = raw[CODES] + b * (UNIT / 2);
            *dst++ = raw[SCALES][b];
            for (int i = 0; i < UNIT / 2; i++, dst++)
                *dst = (uint8_t)((codes[i / 2] >> i % 2 * 4 & 15) |
                                 (codes[UNIT / 4 + i / 2] >> i % 2 * 4 & 15) << 4);
        }
    }
    return NULL;
}

static bool find_mxfp4(const struct model *model, struct tensor_place place,
                       struct tensor_source *out) {
    add_tensor(model, place, "blocks", CODES, out);
    add_tensor(model, place, "scales", SCALES, out);
    const struct tensor_info *codes = out->tensors[CODES], *scales = out->tensors[SCALES];
    if (codes == NULL)
        return false;
    if (scales == NULL)
        return refuse(out, CODES, "the tensor with its scales is missing");
    if (!is_of_type(codes, "U8") || codes->num_dims != 4 || codes->shape[3] != UNIT / 2 ||
        codes->shape[0] > INT32_MAX)
        return refuse(out, CODES, "is not of type U8 and shape [experts, rows, blocks, 16]");
    if (!is_of_type(scales, "U8") || scales->num_dims != 3 ||
        memcmp(scales->shape, codes->shape, 3 * sizeof(codes->shape[0])) != 0)
        return refuse(out, SCALES, "is not of type U8 with a scale for each block");
    out->num_experts = (int32_t)codes->shape[0];
    out->alternates = place.role == TENSOR_EXPERT_GATE_UP;
    out->assemble = assemble_mxfp4;
    if (set_sizes(codes->shape[1], codes->shape[2] * UNIT, out))
        out->dtype = DTYPE_MXFP4;
    return true;
}

bool tensor_source_find_quantised(const struct model *model, struct tensor_place place,
                                  struct tensor_source *out) {
    out->quantization = &model->config.quantization;
    switch (model->config.quantization.method) {
    case QUANTIZATION_GPTQ:
        return find_gptq(model, place, out);
    case QUANTIZATION_AWQ:
        return find_awq(model, place, out);
    case QUANTIZATION_COMPRESSED:
        return find_packed(model, place, out) || find_bytes(model, place, out);
    case QUANTIZATION_FP8:
        return find_bytes(model, place, out);
    case QUANTIZATION_MXFP4:
        return find_mxfp4(model, place, out);
    case QUANTIZATION_NONE:
        break;
    }
    return false;
}
