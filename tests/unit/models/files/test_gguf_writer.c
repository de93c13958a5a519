/* What the writer writes is what the parser reads. */
#include "models/files/gguf_writer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct text text_of(const char *literal) {
    return (struct text){literal, strlen(literal)};
}

static const float f32_values[2] = {0.25F, -1.0F};
static const int32_t i32_values[3] = {1, -2, 3};

static struct gguf_writer all_values(void) {
    struct gguf_writer w = {0};
    const struct text strings[] = {text_of("one"), text_of(""), text_of("three")};
    gguf_writer_string(&w, "a.string", text_of("hello"));
    gguf_writer_u32(&w, "a.u32", 4000000000U);
    gguf_writer_i32(&w, "a.i32", -5);
    gguf_writer_f32(&w, "a.f32", 0.5F);
    gguf_writer_bool(&w, "a.bool", true);
    gguf_writer_strings(&w, "a.strings", strings, 3);
    gguf_writer_i32s(&w, "a.i32s", i32_values, 3);
    gguf_writer_f32s(&w, "a.f32s", f32_values, 2);
    gguf_writer_bools(&w, "a.bools", (const uint8_t[]){1, 0}, 2);
    return w;
}

/* Adds two tensors and opens the file in *out_bytes, whose data are zeros. */
static struct tensor_file *finish_and_open(struct gguf_writer *w, struct byte_buffer *bytes) {
    struct tensor_file *file = NULL;
    struct error err = {0};
    const struct tensor_info odd = {
        .name = text_of("odd"), .dtype = DTYPE_Q4_0, .num_dims = 2, .shape = {3, 32}, .bytes = 54};
    const struct tensor_info next = {.name = text_of("next"),
                                     .dtype = DTYPE_BF16,
                                     .num_dims = 3,
                                     .shape = {2, 3, 4},
                                     .bytes = 48};
    assert_int_equal(gguf_writer_tensor(w, &odd), 0);
    assert_int_equal(gguf_writer_tensor(w, &next), 64);
    assert_int_equal(w->data_bytes, 128);
    assert_int_equal(gguf_writer_end(w, bytes, &err), 0);
    assert_int_equal(bytes->length % GGUF_WRITER_ALIGNMENT, 0);
    static const char zeros[128];
    byte_buffer_append(bytes, zeros, sizeof(zeros));
    if (tensor_file_open_memory(bytes->data, bytes->length, "m.gguf", &file, &err) != 0)
        fail_msg("%s", err.message);
    gguf_writer_finish(w);
    return file;
}

static const struct metadata *find(const struct tensor_file *file, const char *key) {
    const struct metadata *entry = tensor_file_find_metadata(file, key);
    assert_non_null(entry);
    return entry;
}

static void test_values_are_read_back(void **state) {
    struct gguf_writer w = all_values();
    struct byte_buffer bytes = {0};
    struct tensor_file *file = finish_and_open(&w, &bytes);
    assert_string_equal(tensor_file_format(file), "GGUF v3");
    assert_int_equal(tensor_file_num_metadata(file), 9);
    assert_true(text_is(find(file, "a.string")->as_string, "hello"));
    assert_int_equal(find(file, "a.u32")->as_uint, 4000000000U);
    assert_int_equal(find(file, "a.i32")->as_int, -5);
    assert_true(find(file, "a.f32")->as_float == 0.5);
    assert_int_equal(find(file, "a.bool")->as_uint, 1);
    assert_true(text_is(metadata_array_string(find(file, "a.strings"), 2), "three"));
    assert_int_equal(find(file, "a.strings")->as_array.count, 3);
    assert_true(metadata_array_number(find(file, "a.i32s"), 1) == -2.0);
    assert_true(metadata_array_number(find(file, "a.f32s"), 1) == -1.0);
    assert_true(metadata_array_number(find(file, "a.bools"), 0) == 1.0);
    const struct tensor_info *next = tensor_file_find(file, "next");
    assert_int_equal(next->num_dims, 3);
    assert_int_equal(next->shape[0], 2);
    assert_int_equal(next->shape[2], 4);
    assert_int_equal(next->dtype, DTYPE_BF16);
    assert_int_equal(next->offset, bytes.length - 64);
    tensor_file_close(file);
    byte_buffer_finish(&bytes);
}

static void test_copies_are_equal(void **state) {
    struct gguf_writer w = all_values(), copy = {0};
    struct byte_buffer bytes = {0}, copied = {0};
    struct tensor_file *file = finish_and_open(&w, &bytes);
    for (size_t i = 0; i < tensor_file_num_metadata(file); i++)
        gguf_writer_copy(&copy, tensor_file_metadata(file, i));
    struct tensor_file *again = finish_and_open(&copy, &copied);
    assert_int_equal(bytes.length, copied.length);
    assert_memory_equal(bytes.data, copied.data, bytes.length);
    tensor_file_close(again);
    tensor_file_close(file);
    byte_buffer_finish(&bytes);
    byte_buffer_finish(&copied);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values_are_read_back),
        cmocka_unit_test(test_copies_are_equal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
