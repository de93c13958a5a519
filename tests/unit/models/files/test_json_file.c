#include "models/files/json_file.h"

#include "models/files/input_file.h"
#include "tests/unit/temporary_files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <sys/stat.h>

#define MAX_BYTES 4096

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

static void assert_refused(const char *path, enum error_code code, const char *reason) {
    struct error err = {0};
    assert_null(json_file_read(path, MAX_BYTES, &err));
    assert_int_equal(err.code, code);
    assert_int_equal(strncmp(err.message, path, strlen(path)), 0);
    if (strstr(err.message, reason) == NULL)
        fail_msg("expected '%s' in '%s'", reason, err.message);
}

static void assert_text_refused(struct temporary_folder *folder, const char *text,
                                const char *reason) {
    assert_refused(temporary_write(folder, "x.json", text, strlen(text)), ERROR_MODEL, reason);
}

static void a_file_becomes_a_tree(void **state) {
    static const char text[] = "{\"a\": 1, \"A\": [true, \"\\u00e9\"]}\n";
    struct error err;
    const char *path = temporary_write(*state, "x.json", text, sizeof(text) - 1);
    cJSON *json = json_file_read(path, MAX_BYTES, &err);
    assert_non_null(json);
    assert_true(cJSON_GetObjectItemCaseSensitive(json, "a")->valuedouble == 1.0);
    cJSON_Delete(json);
    json = json_memory_read(text, sizeof(text) - 1, "x.json", &err);
    assert_non_null(json);
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(json, "A")), 2);
    cJSON_Delete(json);
}

static void bad_json_is_refused_with_file_and_byte(void **state) {
    assert_text_refused(*state, "{\"a\": 1,}", "is not valid JSON: unexpected '}' at byte 8");
    assert_text_refused(*state, "[]", "an object is expected");
    assert_text_refused(*state, "{\"a\":1,\"\\u0061\":2}", "already has at byte 7");
    assert_text_refused(*state, "{\"a\":\"\xFF\"}", "invalid UTF-8 at byte 6");
    assert_text_refused(*state, "{} {}", "at byte 3 where the end is expected");
    assert_text_refused(*state, "", "is empty");
}

static void what_is_no_bounded_file_is_refused(void **state) {
    char large[MAX_BYTES + 2];
    memset(large, ' ', sizeof(large));
    large[0] = '{', large[1] = '}';
    struct error err;
    cJSON *json =
        json_file_read(temporary_write(*state, "x.json", large, MAX_BYTES), MAX_BYTES, &err);
    assert_non_null(json);
    cJSON_Delete(json);
    assert_refused(temporary_write(*state, "x.json", large, MAX_BYTES + 1), ERROR_MODEL,
                   "has 4097 bytes (at most 4096)");
    assert_refused(((struct temporary_folder *)*state)->path, ERROR_MODEL, "is a directory");
    assert_refused(temporary_file(*state, "none.json"), ERROR_IO, "No such file");
    const char *fifo = temporary_file(*state, "fifo");
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_refused(fifo, ERROR_MODEL, "not a regular file");
    assert_refused("/dev/zero", ERROR_MODEL, "not a regular file");
}

/* A size the system reports and then does not deliver: the file was cut in between. */
static void a_file_cut_after_opening_is_an_error(void **state) {
    static const char text[] = "0123456789";
    char dst[10];
    struct input_file file;
    struct error err = {0};
    const char *path = temporary_write(*state, "x", text, 10);
    assert_int_equal(input_file_open(path, &file, &err), 0);
    assert_int_equal(input_file_read(&file, 2, 8, dst, NULL, &err), 0);
    assert_memory_equal(dst, "23456789", 8);
    assert_int_equal(truncate(path, 4), 0);
    assert_int_equal(input_file_read(&file, 2, 8, dst, "tensor 'x'", &err), -1);
    assert_int_equal(err.code, ERROR_MODEL);
    assert_non_null(strstr(err.message, "/x: tensor 'x': the file ended at byte 4 of 10"));
    input_file_finish(&file);
    input_file_finish(&file);
}

/* As many values as the largest vocabulary and merge list in use; a quadratic step would show. */
static void a_large_document_is_read(void **state) {
    enum { NUM_KEYS = 260000, NUM_PAIRS = 510000 };
    char *text = malloc(64U << 20), *at = stpcpy(text, "{\"vocab\":{");
    assert_non_null(text);
    for (int i = 0; i < NUM_KEYS; i++)
        at += sprintf(at, "\"\\u2581token%d\":%d,", i, i);
    at = stpcpy(at - 1, "},\"merges\":[");
    for (int i = 0; i < NUM_PAIRS; i++)
        at += sprintf(at, "[\"a\",\"b\"],");
    at = stpcpy(at - 1, "]}");
    struct error err;
    cJSON *json = json_memory_read(text, (size_t)(at - text), "large", &err);
    assert_non_null(json);
    assert_int_equal(cJSON_GetArraySize(json->child), NUM_KEYS);
    cJSON_Delete(json);
    free(text);
}

static void the_number_of_values_is_bounded(void **state) {
    size_t length = 6;
    char *text = malloc(2 * (JSON_FILE_MAX_NODES + 8));
    struct error err;
    assert_non_null(text);
    memcpy(text, "{\"a\":[", length);
    for (int i = 0; i < JSON_FILE_MAX_NODES; i++, length += 2)
        memcpy(text + length, "1,", 2);
    memcpy(text + length, "1]}", 3);
    assert_null(json_memory_read(text, length + 3, "large", &err));
    assert_int_equal(err.code, ERROR_MODEL);
    assert_non_null(strstr(err.message, "too many values"));
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_file_becomes_a_tree, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(bad_json_is_refused_with_file_and_byte, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(what_is_no_bounded_file_is_refused, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(a_file_cut_after_opening_is_an_error, make_folder,
                                        remove_folder),
        cmocka_unit_test(a_large_document_is_read),
        cmocka_unit_test(the_number_of_values_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
