#include "models/files/tensor_file.h"

#include "tests/unit/models/gguf_writer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>

static int open_image(const struct gguf_writer *w, struct tensor_file **out, struct error *err) {
    return tensor_file_open_memory(w->data, w->bytes, "m.gguf", out, err);
}

/* Every parse failure is one line that begins with the file and says something. */
static void assert_one_line(const struct error *err) {
    assert_int_equal(err->code, ERROR_MODEL);
    assert_int_equal(strncmp(err->message, "m.gguf: ", 8), 0);
    assert_true(strlen(err->message) > 16);
    assert_null(strchr(err->message, '\n'));
}

/* Parses a copy of exactly the written size, so that a sanitizer sees any read past the end. */
static void assert_refused(struct gguf_writer *w, const char *reason) {
    struct tensor_file *file = NULL;
    struct error err = {0};
    uint8_t *exact = malloc(w->bytes + 1);
    memcpy(exact, w->data, w->bytes);
    assert_int_equal(tensor_file_open_memory(exact, w->bytes, "m.gguf", &file, &err), -1);
    assert_null(file);
    assert_one_line(&err);
    if (strstr(err.message, reason) == NULL)
        fail_msg("expected '%s' in '%s'", reason, err.message);
    free(exact);
    gguf_finish(w);
}

/* --- Whole, good files --- */

static void put_all_value_types(struct gguf_writer *w) {
    const uint16_t array[3] = {1, 2, 65535};
    const int8_t signed_array[2] = {-1, 127};
    gguf_put_key(w, "a.u8", GGUF_UINT8), gguf_put(w, &(uint8_t){200}, 1);
    gguf_put_key(w, "a.i8", GGUF_INT8), gguf_put(w, &(int8_t){-2}, 1);
    gguf_put_key(w, "a.u16", GGUF_UINT16), gguf_put(w, &(uint16_t){65000}, 2);
    gguf_put_key(w, "a.i16", GGUF_INT16), gguf_put(w, &(int16_t){-3000}, 2);
    gguf_put_key_u32(w, "a.u32", 4000000000U);
    gguf_put_key(w, "a.i32", GGUF_INT32), gguf_put(w, &(int32_t){-5}, 4);
    gguf_put_key_f32(w, "a.f32", 0.5F);
    gguf_put_key(w, "a.bool", GGUF_BOOL), gguf_put(w, &(uint8_t){1}, 1);
    gguf_put_key_string(w, "a.string", "hello");
    gguf_put_key_u64(w, "a.u64", UINT64_MAX);
    gguf_put_key(w, "a.i64", GGUF_INT64), gguf_put(w, &(int64_t){INT64_MIN}, 8);
    gguf_put_key(w, "a.f64", GGUF_FLOAT64), gguf_put(w, &(double){0.25}, 8);
    gguf_put_key_array(w, "a.array", GGUF_UINT16, 3), gguf_put(w, array, sizeof(array));
    gguf_put_key_array(w, "a.signed", GGUF_INT8, 2), gguf_put(w, signed_array, 2);
    gguf_put_key_array(w, "a.strings", GGUF_STRING, 3);
    gguf_put_string(w, "one"), gguf_put_string(w, ""), gguf_put_string(w, "three");
    gguf_put_key_array(w, "a.empty", GGUF_STRING, 0);
}

static const uint64_t dims_small[2] = {32, 3};

/* 16 keys, a Q8_0 and a float tensor. */
static struct gguf_writer good_image(void) {
    struct gguf_writer w = {0};
    gguf_put_header(&w, 3, 2, 16);
    put_all_value_types(&w);
    gguf_put_tensor(&w, "codes", 2, dims_small, GGUF_TENSOR_Q8_0, 0);
    gguf_put_tensor(&w, "floats", 1, dims_small, GGUF_TENSOR_F32, 128);
    gguf_pad(&w, 32);
    gguf_put_zeros(&w, 128);
    for (int i = 0; i < 32; i++)
        gguf_put(&w, &(float){(float)i}, 4);
    return w;
}

static void test_reads_metadata(void **state) {
    struct gguf_writer w = good_image();
    struct tensor_file *file;
    struct error err;
    assert_int_equal(open_image(&w, &file, &err), 0);
    assert_string_equal(tensor_file_format(file), "GGUF v3");
    assert_int_equal(tensor_file_num_metadata(file), 16);
    assert_int_equal(tensor_file_bytes(file), w.bytes);
    assert_int_equal(tensor_file_find_metadata(file, "a.u8")->as_uint, 200);
    assert_int_equal(tensor_file_find_metadata(file, "a.i8")->as_int, -2);
    assert_int_equal(tensor_file_find_metadata(file, "a.u16")->as_uint, 65000);
    assert_int_equal(tensor_file_find_metadata(file, "a.i16")->as_int, -3000);
    assert_int_equal(tensor_file_find_metadata(file, "a.u32")->as_uint, 4000000000U);
    assert_int_equal(tensor_file_find_metadata(file, "a.i32")->as_int, -5);
    assert_true(tensor_file_find_metadata(file, "a.f32")->as_float == 0.5);
    assert_int_equal(tensor_file_find_metadata(file, "a.bool")->as_uint, 1);
    assert_true(tensor_file_find_metadata(file, "a.u64")->as_uint == UINT64_MAX);
    assert_true(tensor_file_find_metadata(file, "a.i64")->as_int == INT64_MIN);
    assert_true(tensor_file_find_metadata(file, "a.f64")->as_float == 0.25);
    struct text text = tensor_file_find_metadata(file, "a.string")->as_string;
    assert_int_equal(text.length, 5);
    assert_memory_equal(text.data, "hello", 5);
    assert_null(tensor_file_find_metadata(file, "a"));
    assert_null(tensor_file_find_metadata(file, "a.u8x"));
    tensor_file_close(file);
    gguf_finish(&w);
}

static void test_reads_arrays(void **state) {
    struct gguf_writer w = good_image();
    struct tensor_file *file;
    struct error err;
    assert_int_equal(open_image(&w, &file, &err), 0);
    const struct metadata *numbers = tensor_file_find_metadata(file, "a.array");
    assert_int_equal(numbers->type, METADATA_ARRAY);
    assert_true(metadata_array_number(numbers, 2) == 65535.0);
    const struct metadata *with_sign = tensor_file_find_metadata(file, "a.signed");
    assert_true(metadata_array_number(with_sign, 0) == -1.0);
    assert_true(metadata_array_number(with_sign, 1) == 127.0);
    const struct metadata *strings = tensor_file_find_metadata(file, "a.strings");
    assert_int_equal(strings->as_array.count, 3);
    assert_int_equal(metadata_array_string(strings, 1).length, 0);
    assert_memory_equal(metadata_array_string(strings, 2).data, "three", 5);
    assert_int_equal(tensor_file_find_metadata(file, "a.empty")->as_array.count, 0);
    tensor_file_close(file);
    gguf_finish(&w);
}

static void test_reads_tensors(void **state) {
    struct gguf_writer w = good_image();
    struct tensor_file *file;
    struct error err;
    assert_int_equal(open_image(&w, &file, &err), 0);
    assert_int_equal(tensor_file_num_tensors(file), 2);
    const struct tensor_info *codes = tensor_file_find(file, "codes");
    assert_int_equal(codes->dtype, DTYPE_Q8_0);
    assert_int_equal(codes->num_dims, 2);
    assert_int_equal(codes->shape[0], 3);
    assert_int_equal(codes->shape[1], 32);
    assert_int_equal(codes->bytes, 3 * 34);
    const struct tensor_info *floats = tensor_file_find(file, "floats");
    float last;
    assert_int_equal(
        tensor_read(file, floats, floats->bytes - sizeof(last), sizeof(last), &last, &err), 0);
    assert_true(last == 31.0F);
    assert_ptr_equal(tensor_file_tensor(file, 1), floats);
    assert_null(tensor_file_find(file, "floats2"));
    tensor_file_close(file);
    gguf_finish(&w);
}

static void test_alignment_key(void **state) {
    struct gguf_writer w = {0};
    struct tensor_file *file;
    struct error err;
    gguf_put_header(&w, 3, 1, 1);
    gguf_put_key_u32(&w, "general.alignment", 4096);
    gguf_put_tensor(&w, "t", 2, dims_small, GGUF_TENSOR_F32, 0);
    gguf_pad(&w, 4096);
    gguf_put(&w, &(float){7.0F}, 4);
    gguf_put_zeros(&w, 95 * 4);
    assert_int_equal(open_image(&w, &file, &err), 0);
    float first;
    assert_int_equal(tensor_read(file, tensor_file_find(file, "t"), 0, sizeof(first), &first, &err),
                     0);
    assert_true(first == 7.0F);
    tensor_file_close(file);
    gguf_finish(&w);
}

/* --- Truncation --- */

static void assert_every_cut_refused(const struct gguf_writer *w, size_t step) {
    for (size_t bytes = 0; bytes < w->bytes; bytes += step) {
        struct tensor_file *file = NULL;
        struct error err = {0};
        uint8_t *cut = malloc(bytes + 1);
        memcpy(cut, w->data, bytes);
        if (tensor_file_open_memory(cut, bytes, "m.gguf", &file, &err) == 0)
            fail_msg("accepted when cut to %zu of %zu bytes", bytes, w->bytes);
        assert_one_line(&err);
        free(cut);
    }
}

static void test_truncated_at_every_byte(void **state) {
    struct gguf_writer w = good_image();
    assert_every_cut_refused(&w, 1);
    gguf_finish(&w);
}

static void test_truncated_at_every_page(void **state) {
    struct gguf_writer w = {0};
    const uint64_t dims[2] = {1024, 64};
    gguf_put_header(&w, 3, 2, 1);
    gguf_put_key_array(&w, "tokens", GGUF_STRING, 2000);
    for (int i = 0; i < 2000; i++)
        gguf_put_string(&w, "token");
    gguf_put_tensor(&w, "a", 2, dims, GGUF_TENSOR_F32, 0);
    gguf_put_tensor(&w, "b", 2, dims, GGUF_TENSOR_F32, 262144);
    gguf_pad(&w, 32);
    for (int i = 0; i < 128; i++) {
        static const uint8_t page[4096];
        gguf_put(&w, page, sizeof(page));
    }
    assert_every_cut_refused(&w, 4096);
    gguf_finish(&w);
}

/* Whatever one byte is changed to, the file is either read or refused; the sanitizers judge. */
static void test_any_byte_changed(void **state) {
    static const uint8_t values[] = {0, 1, 0x7f, 0x80, 0xff};
    struct gguf_writer w = good_image();
    uint8_t *copy = malloc(w.bytes);
    for (size_t at = 0; at < w.bytes; at++) {
        for (size_t i = 0; i < sizeof(values); i++) {
            struct tensor_file *file = NULL;
            struct error err = {0};
            memcpy(copy, w.data, w.bytes);
            copy[at] = values[i];
            if (tensor_file_open_memory(copy, w.bytes, "m.gguf", &file, &err) != 0)
                assert_one_line(&err);
            tensor_file_close(file);
        }
    }
    free(copy);
    gguf_finish(&w);
}

/* --- Header --- */

/* Little-endian files of version 2 are laid out as those of version 3. */
static void test_version_2_is_read(void **state) {
    struct gguf_writer w = good_image();
    struct tensor_file *file;
    struct error err;
    w.data[4] = 2;
    assert_int_equal(tensor_file_open_memory(w.data, w.bytes, "m.gguf", &file, &err), 0);
    assert_string_equal(tensor_file_format(file), "GGUF v2");
    tensor_file_close(file);
    gguf_finish(&w);
}

static void test_header_refused(void **state) {
    struct gguf_writer w = {0};
    gguf_put_string(&w, "not a model at all");
    assert_refused(&w, "magic");
    static const struct {
        uint32_t version;
        const char *reason;
    } versions[] = {{0, "version 0"},           {1, "version 1"},
                    {4, "version 4"},           {0x02000000, "big-endian"},
                    {0x03000000, "big-endian"}, {0xffffffff, "version 4294967295"}};
    for (size_t i = 0; i < sizeof(versions) / sizeof(versions[0]); i++) {
        gguf_put_header(&w, versions[i].version, 0, 0);
        assert_refused(&w, versions[i].reason);
    }
    static const uint64_t counts[] = {UINT64_MAX, (uint64_t)1 << 63, (uint64_t)1 << 40, 2};
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        gguf_put_header(&w, 3, 0, counts[i]);
        assert_refused(&w, "metadata entries");
        gguf_put_header(&w, 3, counts[i], 0);
        assert_refused(&w, "tensors");
    }
}

/* --- Metadata --- */

/* A header for one key, which the caller continues. */
static struct gguf_writer one_key(void) {
    struct gguf_writer w = {0};
    gguf_put_header(&w, 3, 0, 1);
    return w;
}

static void test_keys_refused(void **state) {
    struct gguf_writer w = one_key();
    gguf_put_u64(&w, UINT64_MAX), gguf_put_zeros(&w, 64);
    assert_refused(&w, "metadata key 0: string of 18446744073709551615 bytes");
    w = one_key();
    gguf_put_key_u32(&w, "", 1), gguf_put_zeros(&w, 8);
    assert_refused(&w, "name of 0 bytes");
    w = one_key();
    gguf_put_key_u32(&w, "new\nline", 1);
    assert_refused(&w, "control character");
    w = (struct gguf_writer){0};
    gguf_put_header(&w, 3, 0, 3);
    gguf_put_key_u32(&w, "twice", 1), gguf_put_key_u32(&w, "once", 1);
    gguf_put_key_u32(&w, "twice", 1);
    assert_refused(&w, "'twice' occurs more than once");
    w = one_key();
    char *long_key = calloc(70000, 1);
    memset(long_key, 'k', 69999);
    gguf_put_key_u32(&w, long_key, 1);
    free(long_key);
    assert_refused(&w, "name of 69999 bytes");
}

static void test_values_refused(void **state) {
    struct gguf_writer w = one_key();
    gguf_put_key(&w, "k", 13), gguf_put_zeros(&w, 8);
    assert_refused(&w, "unknown value type 13");
    w = one_key();
    gguf_put_key(&w, "k", UINT32_MAX), gguf_put_zeros(&w, 8);
    assert_refused(&w, "unknown value type 4294967295");
    w = one_key();
    gguf_put_key(&w, "k", GGUF_BOOL), gguf_put(&w, &(uint8_t){2}, 1);
    assert_refused(&w, "neither 0 nor 1");
    w = one_key();
    gguf_put_key(&w, "k", GGUF_STRING), gguf_put_u64(&w, (uint64_t)1 << 63);
    assert_refused(&w, "string of 9223372036854775808 bytes");
    w = one_key();
    gguf_put_key(&w, "k", GGUF_UINT64), gguf_put_u32(&w, 0);
    assert_refused(&w, "metadata 'k'");
}

static void test_arrays_refused(void **state) {
    static const uint64_t counts[] = {UINT64_MAX, (uint64_t)1 << 63, (uint64_t)1 << 40, 100};
    struct gguf_writer w;
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        w = one_key();
        gguf_put_key_array(&w, "k", GGUF_STRING, counts[i]), gguf_put_zeros(&w, 16);
        assert_refused(&w, "metadata 'k'");
        w = one_key();
        gguf_put_key_array(&w, "k", GGUF_FLOAT64, counts[i]), gguf_put_zeros(&w, 16);
        assert_refused(&w, "metadata 'k'");
        w = one_key();
        gguf_put_key_array(&w, "k", GGUF_UINT8, counts[i]), gguf_put_zeros(&w, 16);
        assert_refused(&w, "metadata 'k'");
    }
    w = one_key();
    gguf_put_key_array(&w, "k", GGUF_ARRAY, 1), gguf_put_zeros(&w, 64);
    assert_refused(&w, "array of arrays");
    w = one_key();
    gguf_put_key_array(&w, "k", 99, 1), gguf_put_zeros(&w, 64);
    assert_refused(&w, "unknown value type 99");
    w = one_key();
    gguf_put_key_array(&w, "k", GGUF_STRING, 2), gguf_put_string(&w, "first");
    gguf_put_u64(&w, UINT64_MAX - 7);
    assert_refused(&w, "ends beyond the file");
    w = one_key();
    gguf_put_key_array(&w, "k", GGUF_BOOL, 2), gguf_put(&w, "\x01\x02", 2);
    assert_refused(&w, "neither 0 nor 1");
}

static void test_alignment_refused(void **state) {
    static const uint32_t values[] = {0, 1, 13, 33, UINT32_MAX};
    struct gguf_writer w;
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        w = one_key();
        gguf_put_key_u32(&w, "general.alignment", values[i]);
        assert_refused(&w, "power of two");
    }
    w = one_key();
    gguf_put_key_u64(&w, "general.alignment", (uint64_t)1 << 63);
    assert_refused(&w, "power of two");
    w = one_key();
    gguf_put_key_string(&w, "general.alignment", "32");
    assert_refused(&w, "not an unsigned number");
}

/* --- Tensors --- */

static struct gguf_writer one_tensor(uint32_t num_dims, const uint64_t *dims, uint32_t type,
                                     uint64_t offset, size_t data_bytes) {
    struct gguf_writer w = {0};
    gguf_put_header(&w, 3, 1, 0);
    gguf_put_tensor(&w, "blk.3.attn_q.weight", num_dims, dims, type, offset);
    gguf_pad(&w, 32);
    gguf_put_zeros(&w, data_bytes);
    return w;
}

static void test_tensor_names_refused(void **state) {
    struct gguf_writer w = {0};
    gguf_put_header(&w, 3, 1, 0);
    gguf_put_u64(&w, UINT64_MAX), gguf_put_zeros(&w, 64);
    assert_refused(&w, "tensor 0: string of 18446744073709551615 bytes");
    gguf_put_header(&w, 3, 1, 0);
    gguf_put_tensor(&w, "", 2, dims_small, GGUF_TENSOR_F32, 0), gguf_put_zeros(&w, 512);
    assert_refused(&w, "name of 0 bytes");
    gguf_put_header(&w, 3, 1, 0);
    gguf_put_tensor(&w, "0123456789012345678901234567890123456789012345678901234567890123456789", 2,
                    dims_small, GGUF_TENSOR_F32, 0);
    gguf_put_zeros(&w, 512);
    assert_refused(&w, "name of 70 bytes");
    gguf_put_header(&w, 3, 2, 0);
    gguf_put_tensor(&w, "same", 2, dims_small, GGUF_TENSOR_F32, 0);
    gguf_put_tensor(&w, "same", 2, dims_small, GGUF_TENSOR_F32, 384);
    gguf_put_zeros(&w, 1024);
    assert_refused(&w, "tensor 'same' occurs more than once");
}

static void test_tensor_shapes_refused(void **state) {
    static const uint64_t five[5] = {32, 1, 1, 1, 1};
    static const uint64_t zero[2] = {32, 0}, negative[2] = {32, UINT64_MAX};
    static const uint64_t elements[4] = {1 << 20, 1 << 20, 1 << 20, 1 << 20};
    static const uint64_t bytes[2] = {32, INT64_MAX / 64};
    static const uint64_t ragged[2] = {33, 4};
    struct gguf_writer w = one_tensor(0, five, GGUF_TENSOR_F32, 0, 128);
    assert_refused(&w, "0 dimensions");
    w = one_tensor(5, five, GGUF_TENSOR_F32, 0, 128);
    assert_refused(&w, "5 dimensions");
    w = one_tensor(2, zero, GGUF_TENSOR_F32, 0, 128);
    assert_refused(&w, "a dimension is zero");
    w = one_tensor(2, negative, GGUF_TENSOR_F32, 0, 128);
    assert_refused(&w, "a dimension is zero or beyond");
    w = one_tensor(4, elements, GGUF_TENSOR_F32, 0, 128);
    assert_refused(&w, "its size is beyond");
    w = one_tensor(2, bytes, GGUF_TENSOR_F32, 0, 128);
    assert_refused(&w, "its size is beyond");
    w = one_tensor(2, ragged, GGUF_TENSOR_Q4_0, 0, 128);
    assert_refused(&w, "rows of 33 elements are not a multiple of the 32 of a q4_0 block");
}

/* The type numbers of the format (ggml/docs/gguf.md, enum ggml_type). */
static void test_tensor_types(void **state) {
    static const struct {
        uint32_t number;
        enum dtype dtype;
    } types[] = {{0, DTYPE_F32},     {1, DTYPE_F16},      {2, DTYPE_Q4_0},   {3, DTYPE_Q4_1},
                 {6, DTYPE_Q5_0},    {7, DTYPE_Q5_1},     {8, DTYPE_Q8_0},   {10, DTYPE_Q2_K},
                 {11, DTYPE_Q3_K},   {12, DTYPE_Q4_K},    {13, DTYPE_Q5_K},  {14, DTYPE_Q6_K},
                 {20, DTYPE_IQ4_NL}, {30, DTYPE_BF16},    {39, DTYPE_MXFP4}, {16, DTYPE_IQ2_XXS},
                 {17, DTYPE_IQ2_XS}, {18, DTYPE_IQ3_XXS}, {19, DTYPE_IQ1_S}, {21, DTYPE_IQ3_S},
                 {22, DTYPE_IQ2_S},  {23, DTYPE_IQ4_XS},  {29, DTYPE_IQ1_M}, {34, DTYPE_TQ1_0},
                 {35, DTYPE_TQ2_0}};
    static const uint64_t dims[2] = {256, 3};
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        struct gguf_writer w = one_tensor(2, dims, types[i].number, 0, 3 * 256 * sizeof(float));
        struct tensor_file *file = NULL;
        struct error err = {0};
        assert_int_equal(open_image(&w, &file, &err), 0);
        const struct tensor_info *tensor = tensor_file_tensor(file, 0);
        assert_int_equal(tensor->dtype, types[i].dtype);
        assert_int_equal(tensor->bytes, 3 * dtype_row_bytes(types[i].dtype, 256));
        tensor_file_close(file);
        gguf_finish(&w);
    }
}

static void test_tensor_types_refused(void **state) {
    static const struct {
        uint32_t number;
        const char *message;
    } types[] = {
        {4, "(q4_2)"},      {9, "(q8_1)"},        {26, "(i32)"},
        {31, "(q4_0_4_4)"}, {38, "(iq4_nl_8_8)"}, {40, "(nvfp4)"},
        {41, "(q1_0)"},     {42, "(unknown)"},    {UINT32_MAX, "type 4294967295 (unknown)"}};
    struct gguf_writer w = one_tensor(2, dims_small, GGUF_TENSOR_Q8_K, 0, 512);
    assert_refused(&w,
                   "tensor 'blk.3.attn_q.weight': type 15 (q8_k) is not supported (supported: "
                   "f32, f16, bf16, q4_0, q4_1, q5_0, q5_1, q8_0, q2_k to q6_k, iq1_s to iq4_xs, "
                   "tq1_0, tq2_0, mxfp4)");
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        w = one_tensor(2, dims_small, types[i].number, 0, 512);
        assert_refused(&w, types[i].message);
    }
}

static void test_tensor_data_refused(void **state) {
    struct gguf_writer w = one_tensor(2, dims_small, GGUF_TENSOR_F32, 16, 512);
    assert_refused(&w, "offset 16 is not a multiple of 32");
    w = one_tensor(2, dims_small, GGUF_TENSOR_F32, UINT64_MAX - 31, 512);
    assert_refused(&w, "its offset is beyond");
    w = one_tensor(2, dims_small, GGUF_TENSOR_F32, (uint64_t)1 << 62, 512);
    assert_refused(&w, "data ends at byte 46116860184273");
    w = one_tensor(2, dims_small, GGUF_TENSOR_F32, 0, 383);
    assert_refused(&w, "m.gguf: tensor 'blk.3.attn_q.weight': data ends at byte 480 but the file "
                       "has 479");
    gguf_put_header(&w, 3, 2, 0);
    gguf_put_tensor(&w, "a", 2, dims_small, GGUF_TENSOR_F32, 0);
    gguf_put_tensor(&w, "b", 2, dims_small, GGUF_TENSOR_F32, 352);
    gguf_pad(&w, 32), gguf_put_zeros(&w, 1024);
    assert_refused(&w, "tensors 'a' and 'b' overlap");
}

/* Two sizes that wrap to a small sum when added without a check. */
static void test_sizes_that_wrap_refused(void **state) {
    static const uint64_t huge[1] = {(INT64_MAX - 63) / 4};
    struct gguf_writer w = {0};
    gguf_put_header(&w, 3, 2, 0);
    gguf_put_tensor(&w, "a", 1, huge, GGUF_TENSOR_F32, 0);
    gguf_put_tensor(&w, "b", 1, huge, GGUF_TENSOR_F32, ((uint64_t)INT64_MAX - 63) & ~(uint64_t)31);
    gguf_pad(&w, 32), gguf_put_zeros(&w, 1024);
    assert_refused(&w, "tensor 'a': data ends at byte");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads_metadata),
        cmocka_unit_test(test_reads_arrays),
        cmocka_unit_test(test_reads_tensors),
        cmocka_unit_test(test_alignment_key),
        cmocka_unit_test(test_truncated_at_every_byte),
        cmocka_unit_test(test_truncated_at_every_page),
        cmocka_unit_test(test_any_byte_changed),
        cmocka_unit_test(test_version_2_is_read),
        cmocka_unit_test(test_header_refused),
        cmocka_unit_test(test_keys_refused),
        cmocka_unit_test(test_values_refused),
        cmocka_unit_test(test_arrays_refused),
        cmocka_unit_test(test_alignment_refused),
        cmocka_unit_test(test_tensor_names_refused),
        cmocka_unit_test(test_tensor_shapes_refused),
        cmocka_unit_test(test_tensor_types),
        cmocka_unit_test(test_tensor_types_refused),
        cmocka_unit_test(test_tensor_data_refused),
        cmocka_unit_test(test_sizes_that_wrap_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
