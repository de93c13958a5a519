#include "models/files/tensor_file.h"

#include "tests/unit/models/gguf_writer.h"
#include "tests/unit/temporary_files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static int make_folder(void **state) {
    *state = calloc(1, sizeof(struct temporary_folder));
    temporary_folder_make(*state);
    return 0;
}

static int remove_folder(void **state) {
    temporary_folder_remove(*state);
    free(*state);
    return 0;
}

static void assert_not_opened(const char *path, enum error_code code, const char *reason) {
    struct tensor_file *file = NULL;
    struct error err = {0};
    assert_int_equal(tensor_file_open(path, &file, &err), -1);
    assert_null(file);
    assert_int_equal(err.code, code);
    assert_int_equal(strncmp(err.message, path, strlen(path)), 0);
    if (strstr(err.message, reason) == NULL)
        fail_msg("expected '%s' in '%s'", reason, err.message);
}

/* One float tensor, "t" = 0, 1, ... 2047. */
static struct gguf_writer counting_image(void) {
    const uint64_t dims[1] = {2048};
    struct gguf_writer w = {0};
    gguf_put_header(&w, 3, 1, 1);
    gguf_put_key_string(&w, "general.name", "tiny");
    gguf_put_tensor(&w, "t", 1, dims, GGUF_TENSOR_F32, 0);
    gguf_pad(&w, 32);
    for (int i = 0; i < 2048; i++)
        gguf_put(&w, &(float){(float)i}, 4);
    return w;
}

static void assert_reads(const struct tensor_file *file) {
    const struct tensor_info *tensor = tensor_file_find(file, "t");
    struct error err = {0};
    float all[2048], some[3];
    assert_int_equal(tensor->bytes, sizeof(all));
    assert_int_equal(tensor_read(file, tensor, 0, sizeof(all), all, &err), 0);
    assert_true(all[0] == 0.0F && all[2047] == 2047.0F);
    assert_int_equal(tensor_read(file, tensor, 2045 * 4, sizeof(some), some, &err), 0);
    assert_true(some[0] == 2045.0F && some[2] == 2047.0F);
    assert_int_equal(tensor_read(file, tensor, sizeof(all), 0, some, &err), 0);
}

static void test_reads_a_file(void **state) {
    struct gguf_writer w = counting_image();
    struct tensor_file *file;
    struct error err;
    const char *path = temporary_write(*state, "m.gguf", w.data, w.bytes);
    assert_int_equal(tensor_file_open(path, &file, &err), 0);
    assert_string_equal(tensor_file_path(file), path);
    assert_int_equal(tensor_file_bytes(file), w.bytes);
    assert_reads(file);
    tensor_file_close(file);
    assert_int_equal(tensor_file_open_memory(w.data, w.bytes, "m.gguf", &file, &err), 0);
    assert_reads(file);
    tensor_file_close(file);
    gguf_finish(&w);
}

/* A header is read a step at a time: 20000 tokens and a long text reach over several. */
static void test_reads_a_long_header(void **state) {
    const uint64_t dims[1] = {4};
    struct gguf_writer w = {0};
    struct tensor_file *file;
    struct error err;
    char token[32];
    float values[4];
    gguf_put_header(&w, 3, 1, 3);
    gguf_put_key_array(&w, "tokens", GGUF_STRING, 20000);
    for (int i = 0; i < 20000; i++) {
        snprintf(token, sizeof(token), "a token of number %d", i);
        gguf_put_string(&w, token);
    }
    gguf_put_key(&w, "text", GGUF_STRING), gguf_put_u64(&w, 1 << 20), gguf_put_zeros(&w, 1 << 20);
    gguf_put_key_array(&w, "scores", GGUF_UINT16, 100000), gguf_put_zeros(&w, 200000);
    gguf_put_tensor(&w, "t", 1, dims, GGUF_TENSOR_F32, 0);
    gguf_pad(&w, 32);
    for (int i = 0; i < 4; i++)
        gguf_put(&w, &(float){(float)i}, 4);
    const char *path = temporary_write(*state, "m.gguf", w.data, w.bytes);
    assert_int_equal(tensor_file_open(path, &file, &err), 0);
    const struct metadata *tokens = tensor_file_find_metadata(file, "tokens");
    for (int i = 0; i < 20000; i++) {
        snprintf(token, sizeof(token), "a token of number %d", i);
        struct text text = metadata_array_string(tokens, (uint64_t)i);
        assert_int_equal(text.length, strlen(token));
        assert_memory_equal(text.data, token, text.length);
    }
    const struct metadata *scores = tensor_file_find_metadata(file, "scores");
    assert_true(metadata_array_number(scores, 99999) == 0.0);
    assert_int_equal(tensor_file_find_metadata(file, "text")->as_string.length, 1 << 20);
    assert_int_equal(tensor_read(file, tensor_file_find(file, "t"), 0, 16, values, &err), 0);
    assert_true(values[3] == 3.0F);
    tensor_file_close(file);
    for (size_t bytes = 65536; bytes < w.bytes; bytes += 65536)
        assert_not_opened(temporary_write(*state, "m.gguf", w.data, bytes), ERROR_MODEL, "");
    gguf_finish(&w);
}

/* Reading a mapping of such a file would end in SIGBUS. */
static void test_a_file_cut_while_it_is_open(void **state) {
    struct gguf_writer w = counting_image();
    struct tensor_file *file;
    struct error err = {0};
    float values[2048];
    const char *path = temporary_write(*state, "m.gguf", w.data, w.bytes);
    assert_int_equal(tensor_file_open(path, &file, &err), 0);
    const struct tensor_info *tensor = tensor_file_find(file, "t");
    assert_int_equal(truncate(path, 4096), 0);
    assert_int_equal(tensor_read(file, tensor, 0, 1024, values, &err), 0);
    assert_int_equal(tensor_read(file, tensor, 0, sizeof(values), values, &err), -1);
    assert_int_equal(err.code, ERROR_MODEL);
    assert_int_equal(strncmp(err.message, path, strlen(path)), 0);
    assert_non_null(strstr(err.message, "tensor 't': the file ended at byte 4096"));
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(tensor_read(file, tensor, 0, 1, values, &err), -1);
    const struct metadata *name = tensor_file_find_metadata(file, "general.name");
    assert_memory_equal(name->as_string.data, "tiny", 4);
    tensor_file_close(file);
    gguf_finish(&w);
}

/* Puts another file at the path of "m.gguf". */
static void put_at_path(struct temporary_folder *folder, const void *data, size_t bytes) {
    char path[512];
    snprintf(path, sizeof(path), "%s", temporary_file(folder, "m.gguf"));
    assert_int_equal(rename(temporary_write(folder, "new", data, bytes), path), 0);
}

static void assert_refused(const struct tensor_file *file, enum error_code code,
                           const char *reason) {
    struct error err = {0};
    assert_int_equal(tensor_file_refresh(file, &err), -1);
    assert_int_equal(err.code, code);
    assert_non_null(strstr(err.message, reason));
}

/* By another file with the same bytes, or by the one that was opened where there is none. */
static void test_refresh(void **state) {
    struct gguf_writer w = counting_image();
    struct tensor_file *file;
    struct error err = {0};
    const char *path = temporary_write(*state, "m.gguf", w.data, w.bytes);
    assert_int_equal(tensor_file_open(path, &file, &err), 0);
    assert_int_equal(truncate(path, 16), 0);
    assert_refused(file, ERROR_MODEL, "the model's files have changed");
    put_at_path(*state, w.data, w.bytes);
    assert_int_equal(tensor_file_refresh(file, &err), 0);
    assert_reads(file);
    assert_int_equal(unlink(temporary_file(*state, "m.gguf")), 0);
    assert_int_equal(tensor_file_refresh(file, &err), 0);
    assert_reads(file);
    w.data[w.bytes - 1] ^= 1;
    put_at_path(*state, w.data, w.bytes);
    assert_refused(file, ERROR_MODEL, "the model's files have changed");
    w.data[w.bytes - 1] ^= 1;
    put_at_path(*state, "", 0);
    assert_refused(file, ERROR_MODEL, "is empty");
    put_at_path(*state, w.data, w.bytes);
    assert_int_equal(tensor_file_refresh(file, &err), 0);
    assert_reads(file);
    tensor_file_close(file);
    gguf_finish(&w);
}

/* No prefix of the file is a model; each is as long as its name says when it is opened. */
static void test_a_file_cut_before_it_is_opened(void **state) {
    struct gguf_writer w = counting_image();
    for (size_t bytes = 4096; bytes < w.bytes; bytes += 4096)
        assert_not_opened(temporary_write(*state, "m.gguf", w.data, bytes), ERROR_MODEL,
                          "tensor 't': data ends at byte");
    for (size_t bytes = 4; bytes < 160; bytes++)
        assert_not_opened(temporary_write(*state, "m.gguf", w.data, bytes), ERROR_MODEL, "");
    gguf_finish(&w);
}

static void test_paths_that_are_no_model(void **state) {
    assert_not_opened(temporary_write(*state, "m", "", 0), ERROR_MODEL, "is empty");
    assert_not_opened(temporary_write(*state, "m", "GGU", 3), ERROR_MODEL, "magic");
    assert_not_opened(temporary_write(*state, "m", "GGUF", 4), ERROR_MODEL,
                      "the file ends at byte 4");
    assert_not_opened(temporary_file(*state, "none"), ERROR_IO, "No such file");
    const char *fifo = temporary_file(*state, "fifo");
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_not_opened(fifo, ERROR_MODEL, "not a regular file");
    assert_not_opened(((struct temporary_folder *)*state)->path, ERROR_MODEL, "is a directory");
    assert_not_opened("/dev/zero", ERROR_MODEL, "not a regular file");
    assert_not_opened("", ERROR_IO, "cannot open");
}

static void test_close_accepts_null(void **state) {
    tensor_file_close(NULL);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_FOLDER(test_reads_a_file),
        IN_FOLDER(test_reads_a_long_header),
        IN_FOLDER(test_a_file_cut_while_it_is_open),
        IN_FOLDER(test_refresh),
        IN_FOLDER(test_a_file_cut_before_it_is_opened),
        IN_FOLDER(test_paths_that_are_no_model),
        cmocka_unit_test(test_close_accepts_null),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
