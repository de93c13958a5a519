/* Packed weights read back bit by bit, as packed_layout.h says where each is. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "kernels/cuda/packed/packed_layout.h"
#include "kernels/quant_form.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_COLS = 768, NUM_ROWS = 3 };

static unsigned bits_of(const uint8_t *bytes, int first, int count) {
    unsigned value = 0;
    for (int i = 0; i < count; i++)
        value |= (unsigned)(bytes[(first + i) / 8] >> (first + i) % 8 & 1) << i;
    return value;
}

/* Where code e of group j begins in a lane's bits. */
static int first_bit(int num_bits, int j, int e) {
    switch (num_bits) {
    case 8:
        return 8 * (8 * j + e);
    case 4:
        return 32 * j + 4 * (e / 2 + 4 * (e % 2));
    case 2:
        return 32 * (j / 2) + 2 * (j % 2 * 4 + e / 2) + 16 * (e % 2);
    default:
        return 4 * j + e / 2 + 16 * (e % 2);
    }
}

static unsigned code_of(const struct packed_form *form, const uint8_t *low, const uint8_t *high,
                        int column) {
    int j = column / 32, t = column % 32 / 8, e = column % 8;
    if (form->group == 16) {
        t = column % 16 / 4;
        e = column % 32 / 16 * 4 + column % 4;
    }
    unsigned code =
        bits_of(low + 4 * form->low_bits * t, first_bit(form->low_bits, j, e), form->low_bits);
    if (form->high_bits > 0)
        code |= bits_of(high + 4 * form->high_bits * t, first_bit(form->high_bits, j, e),
                        form->high_bits)
                << form->low_bits;
    return code;
}

static float number_of(const struct packed_form *form, unsigned code, int zero) {
    switch (form->codes) {
    case PACKED_IQ4_NL:
        return quant_levels_iq4_nl[code];
    case PACKED_E2M1:
        return quant_levels_e2m1[code];
    case PACKED_E4M3:
        return (code & 0x7f) == 0x7f ? (code < 128 ? 480.0F : -480.0F) : e4m3_to_f32((uint8_t)code);
    default:
        if (form->low_bits == 8 && !form->has_zero)
            return (int8_t)code;
        return (float)((int)code - zero);
    }
}

static float factor_of(const struct packed_form *form, const uint8_t *at) {
    float value;
    if (form->factor == PACKED_E8M0)
        return e8m0_half_to_f32(*at);
    if (form->factor == PACKED_F16)
        return f16_to_f32((uint16_t)(at[0] | at[1] << 8));
    memcpy(&value, at, sizeof(value));
    return value;
}

static float value_of(const struct packed_form *form, const struct packed_planes *row, int column) {
    const int chunk = column / PACKED_CHUNK, block = column / form->block;
    const int bytes = packed_factor_bytes(form->factor);
    const uint8_t *factors = row->at[PACKED_FACTORS] + block * bytes * (form->has_min ? 2 : 1);
    const int zero = form->has_zero ? row->at[PACKED_ZEROS][block] : form->zero;
    const uint8_t *high = row->at[PACKED_HIGH];
    const unsigned code =
        code_of(form, row->at[PACKED_LOW] + chunk * 16 * form->low_bits,
                high != NULL ? high + chunk * 16 * form->high_bits : NULL, column % PACKED_CHUNK);
    float scale = factor_of(form, factors);
    const int byte = form->group > 0 ? row->at[PACKED_SCALES][column / form->group] : 0;
    if (form->group > 0)
        scale *= (float)(form->has_nibbles ? byte & 15 : byte - (form->has_min ? 0 : 128));
    float value = scale * number_of(form, code, zero);
    if (!form->has_min)
        return value;
    float min = factor_of(form, factors + bytes);
    if (form->has_nibbles)
        return value + min * (float)(byte >> 4);
    return value + (form->group > 0 ? min * row->at[PACKED_MINS][column / form->group] : min);
}

/* Random bytes are valid blocks of every type, but for factors that are not finite. */
static void fill_random(const struct packed_form *form, uint8_t *data, int32_t cols) {
    float values[MAX_COLS];
    for (bool is_finite = false; !is_finite;) {
        for (size_t i = 0; i < dtype_row_bytes(form->dtype, (size_t)cols); i++)
            data[i] = (uint8_t)rand();
        dtype_to_f32(form->dtype, data, values, (size_t)cols);
        is_finite = true;
        for (int32_t i = 0; i < cols; i++)
            is_finite = is_finite && values[i] - values[i] == 0.0F;
    }
}

static void check_form(const struct packed_form *form, int32_t cols) {
    struct packed_planes planes, row = {{NULL}};
    const size_t row_bytes = dtype_row_bytes(form->dtype, (size_t)cols);
    const size_t bytes = packed_planes_init(form, NULL, NUM_ROWS, cols, &planes);
    char *memory = malloc(bytes);
    uint8_t *data = malloc(NUM_ROWS * row_bytes);
    float expected[MAX_COLS];
    memset(memory, 0xa5, bytes);
    packed_planes_init(form, memory, NUM_ROWS, cols, &planes);
    for (int32_t r = 0; r < NUM_ROWS; r++)
        fill_random(form, data + (size_t)r * row_bytes, cols);
    for (int32_t r = NUM_ROWS - 1; r >= 0; r--)
        packed_row_pack(form, data + (size_t)r * row_bytes, cols, &planes, r);
    for (int32_t r = 0; r < NUM_ROWS; r++) {
        dtype_to_f32(form->dtype, data + (size_t)r * row_bytes, expected, (size_t)cols);
        for (int plane = 0; plane < PACKED_NUM_PLANES; plane++)
            if (planes.at[plane] != NULL)
                row.at[plane] = planes.at[plane] + (size_t)r * packed_row_bytes(form, plane, cols);
            else
                row.at[plane] = NULL;
        for (int32_t column = 0; column < cols; column++)
            if (value_of(form, &row, column) != expected[column])
                fail_msg("%s, %d columns: element %d of row %d is %g, not %g",
                         dtype_name(form->dtype), cols, column, r, value_of(form, &row, column),
                         expected[column]);
    }
    free(memory);
    free(data);
}

static void test_every_bit(void **state) {
    srand(3);
    for (int i = 0; i < PACKED_NUM_FORMS; i++)
        for (int32_t cols = 32; cols <= MAX_COLS; cols += 32)
            if (cols % dtype_block_elements(packed_forms[i].dtype) == 0)
                check_form(&packed_forms[i], cols);
}

/* Rows of whole chunks take as much as in the file, but for scales of 6 bits, which are bytes. */
static void test_bytes(void **state) {
    for (int i = 0; i < PACKED_NUM_FORMS; i++) {
        const struct packed_form *form = &packed_forms[i];
        size_t bytes = 0, in_file = dtype_row_bytes(form->dtype, 4096);
        for (int plane = 0; plane < PACKED_NUM_PLANES; plane++)
            bytes += packed_row_bytes(form, plane, 4096);
        bool has_short_scales =
            form->group > 0 && form->dtype != DTYPE_Q6_K && form->dtype != DTYPE_Q2_K;
        assert_in_range(bytes, in_file, has_short_scales ? in_file * 21 / 20 : in_file);
        assert_int_equal(packed_form_index(form->dtype), i);
    }
    assert_int_equal(packed_form_index(DTYPE_BF16), -1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_bit),
        cmocka_unit_test(test_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
