/* Importance matrices of both formats, and files that are none. */
#include "models/convert/imatrix.h"
#include "models/files/gguf_writer.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { COLS = 4, EXPERTS = 2 };

static char path[] = "/tmp/quire-imatrix-XXXXXX";
static const float sums[EXPERTS * COLS] = {2, 4, 6, 8, 3, 6, 9, 12};

static void put_file(const void *data, size_t bytes) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    fclose(file);
}

static void put_i32(struct byte_buffer *out, int32_t value) {
    byte_buffer_append(out, &value, sizeof(value));
}

/* One entry "w" of values with num_calls, then chunks and a name. */
static struct byte_buffer old_format(const float *values, int32_t num_values, int32_t num_calls) {
    struct byte_buffer out = {0};
    put_i32(&out, 1);
    put_i32(&out, 1);
    byte_buffer_append(&out, "w", 1);
    put_i32(&out, num_calls);
    put_i32(&out, num_values);
    byte_buffer_append(&out, values, (size_t)num_values * sizeof(float));
    put_i32(&out, 7);
    put_i32(&out, 4);
    byte_buffer_append(&out, "text", 4);
    return out;
}

static struct imatrix *open_file(void) {
    struct imatrix *imatrix;
    struct error err = {0};
    if (imatrix_open(path, &imatrix, &err) != 0)
        fail_msg("%s", err.message);
    return imatrix;
}

static void assert_values(const struct imatrix *imatrix, const float *expected) {
    float out[EXPERTS * COLS];
    struct error err = {0};
    bool found;
    assert_int_equal(imatrix_read(imatrix, "w", EXPERTS, COLS, out, &found, &err), 0);
    assert_true(found);
    for (int i = 0; i < EXPERTS * COLS; i++)
        assert_true(out[i] == expected[i]);
    assert_int_equal(imatrix_read(imatrix, "v", EXPERTS, COLS, out, &found, &err), 0);
    assert_false(found);
}

static void test_old_format(void **state) {
    static const float expected[] = {1, 2, 3, 4, 1.5F, 3, 4.5F, 6};
    struct byte_buffer bytes = old_format(sums, EXPERTS * COLS, 2);
    put_file(bytes.data, bytes.length);
    struct imatrix *imatrix = open_file();
    assert_values(imatrix, expected);
    assert_int_equal(imatrix_num_entries(imatrix), 1);
    assert_int_equal(imatrix_num_chunks(imatrix), 7);
    assert_true(text_is(imatrix_dataset(imatrix), "text"));
    imatrix_close(imatrix);
    put_file(bytes.data, bytes.length - 12); /* older files end after the values */
    imatrix = open_file();
    assert_int_equal(imatrix_num_chunks(imatrix), 0);
    imatrix_close(imatrix);
    byte_buffer_finish(&bytes);
}

static void add_tensor(struct gguf_writer *w, const char *name, int64_t rows, int64_t cols) {
    const struct tensor_info info = {.name = {name, strlen(name)},
                                     .dtype = DTYPE_F32,
                                     .num_dims = 2,
                                     .shape = {rows, cols},
                                     .bytes = (size_t)(rows * cols) * sizeof(float)};
    gguf_writer_tensor(w, &info);
}

static void test_gguf_format(void **state) {
    /* The second expert saw no token. */
    static const float expected[] = {0.5F, 1, 1.5F, 2, 1, 1, 1, 1}, counts[8] = {4, 0};
    const struct text dataset = {"text", 4};
    struct gguf_writer w = {0};
    struct byte_buffer bytes = {0};
    struct error err = {0};
    gguf_writer_u32(&w, "imatrix.chunk_count", 9);
    gguf_writer_strings(&w, "imatrix.datasets", &dataset, 1);
    add_tensor(&w, "w.in_sum2", EXPERTS, COLS);
    add_tensor(&w, "w.counts", EXPERTS, 1);
    assert_int_equal(gguf_writer_end(&w, &bytes, &err), 0);
    byte_buffer_append(&bytes, sums, sizeof(sums));
    byte_buffer_append(&bytes, counts, sizeof(counts));
    put_file(bytes.data, bytes.length);
    struct imatrix *imatrix = open_file();
    assert_values(imatrix, expected);
    assert_int_equal(imatrix_num_entries(imatrix), 1);
    assert_int_equal(imatrix_num_chunks(imatrix), 9);
    assert_true(text_is(imatrix_dataset(imatrix), "text"));
    imatrix_close(imatrix);
    gguf_writer_finish(&w);
    byte_buffer_finish(&bytes);
}

/* --- Files that are refused --- */

static void assert_refused(const struct byte_buffer *bytes, size_t length, const char *reason) {
    struct imatrix *imatrix;
    struct error err = {0};
    put_file(bytes->data, length);
    assert_int_equal(imatrix_open(path, &imatrix, &err), -1);
    assert_int_equal(err.code, ERROR_MODEL);
    assert_int_equal(strncmp(err.message, path, strlen(path)), 0);
    if (strstr(err.message, reason) == NULL)
        fail_msg("expected '%s' in '%s'", reason, err.message);
}

static void change(struct byte_buffer *bytes, size_t offset, int32_t value) {
    memcpy(bytes->data + offset, &value, sizeof(value));
}

static void test_broken_files(void **state) {
    static const struct {
        size_t offset;
        int32_t value;
        const char *reason;
    } cases[] = {
        {0, 0, "number of entries 0"},     {0, -1, "number of entries -1"},
        {0, 1 << 17, "number of entries"}, {0, 2, "at byte"},
        {4, 0, "length of a name 0"},      {4, 300, "length of a name 300"},
        {4, -5, "length of a name -5"},    {9, -1, "number of calls -1"},
        {13, 0, "number of values 0"},     {13, INT32_MAX, "the file ends inside values"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct byte_buffer bytes = old_format(sums, EXPERTS * COLS, 2);
        change(&bytes, cases[i].offset, cases[i].value);
        assert_refused(&bytes, bytes.length, cases[i].reason);
        byte_buffer_finish(&bytes);
    }
}

static void test_truncated_files(void **state) {
    struct byte_buffer bytes = old_format(sums, EXPERTS * COLS, 2);
    size_t values_end = bytes.length - 12;
    for (size_t length = 1; length < bytes.length; length++)
        if (length != values_end && length != values_end + 4)
            assert_refused(&bytes, length, "");
    byte_buffer_finish(&bytes);
}

static void assert_values_refused(const float *values, int32_t count, const char *reason) {
    struct byte_buffer bytes = old_format(values, count, 1);
    struct error err = {0};
    float out[EXPERTS * COLS];
    bool found;
    put_file(bytes.data, bytes.length);
    struct imatrix *imatrix = open_file();
    assert_int_equal(imatrix_read(imatrix, "w", EXPERTS, COLS, out, &found, &err), -1);
    assert_int_equal(err.code, ERROR_MODEL);
    if (strstr(err.message, reason) == NULL)
        fail_msg("expected '%s' in '%s'", reason, err.message);
    imatrix_close(imatrix);
    byte_buffer_finish(&bytes);
}

static void test_values_that_cannot_be(void **state) {
    float values[EXPERTS * COLS] = {0};
    assert_values_refused(values, COLS, "has 4 values, and the tensor 8 columns");
    values[5] = -1.0F;
    assert_values_refused(values, EXPERTS * COLS, "value 5 is -1");
    values[5] = NAN;
    assert_values_refused(values, EXPERTS * COLS, "value 5 is");
    values[5] = INFINITY;
    assert_values_refused(values, EXPERTS * COLS, "value 5 is inf");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_old_format),
        cmocka_unit_test(test_gguf_format),
        cmocka_unit_test(test_broken_files),
        cmocka_unit_test(test_truncated_files),
        cmocka_unit_test(test_values_that_cannot_be),
    };
    int fd = mkstemp(path);
    if (fd < 0)
        return 2;
    close(fd);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return failed;
}
