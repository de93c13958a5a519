#include "models/tensor_file.h"

#include "tests/unit/models/gguf_writer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* A fresh path in the directory for temporary files; the caller frees it. */
static char *temporary_path(void) {
    char *path = NULL;
    const char *directory = getenv("TMPDIR");
    assert_true(asprintf(&path, "%s/quire-test-XXXXXX", directory ? directory : "/tmp") > 0);
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    return path;
}

static void write_file(const char *path, const void *data, size_t bytes) {
    FILE *stream = fopen(path, "wb");
    assert_non_null(stream);
    assert_int_equal(fwrite(data, 1, bytes, stream), bytes);
    assert_int_equal(fclose(stream), 0);
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

static void test_maps_a_file(void **state) {
    const uint64_t dims[1] = {8};
    struct gguf_writer w = {0};
    struct tensor_file *file;
    struct error err;
    char *path = temporary_path();
    gguf_put_header(&w, 3, 1, 1);
    gguf_put_key_string(&w, "general.name", "tiny");
    gguf_put_tensor(&w, "t", 1, dims, GGUF_TENSOR_F32, 0);
    gguf_pad(&w, 32);
    gguf_put_zeros(&w, 32);
    write_file(path, w.data, w.bytes);
    assert_int_equal(tensor_file_open(path, &file, &err), 0);
    assert_string_equal(tensor_file_path(file), path);
    assert_int_equal(tensor_file_bytes(file), w.bytes);
    assert_int_equal(tensor_file_find(file, "t")->bytes, 32);
    tensor_file_close(file);
    unlink(path);
    free(path);
    gguf_finish(&w);
}

static void test_paths_that_are_no_model(void **state) {
    char *path = temporary_path();
    assert_not_opened(path, ERROR_MODEL, "is empty");
    write_file(path, "GGU", 3);
    assert_not_opened(path, ERROR_MODEL, "magic");
    write_file(path, "GGUF", 4);
    assert_not_opened(path, ERROR_MODEL, "the file ends at byte 4");
    unlink(path);
    assert_not_opened(path, ERROR_IO, "No such file");
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_not_opened(path, ERROR_MODEL, "not a regular file");
    unlink(path);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_not_opened(path, ERROR_MODEL, "is a directory");
    rmdir(path);
    free(path);
    assert_not_opened("/dev/zero", ERROR_MODEL, "not a regular file");
    assert_not_opened("", ERROR_IO, "cannot open");
}

static void test_close_accepts_null(void **state) {
    tensor_file_close(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_maps_a_file),
        cmocka_unit_test(test_paths_that_are_no_model),
        cmocka_unit_test(test_close_accepts_null),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
