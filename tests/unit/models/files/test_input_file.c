#include "models/files/input_file.h"

#include "tests/unit/temporary_files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static void test_join(void **state) {
    static const struct {
        const char *folder, *joined;
    } cases[] = {{"m", "m/x"}, {"/a/m///", "/a/m/x"}, {"/", "/x"}, {".", "./x"}};
    char path[PATH_MAX];
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(input_file_join_path(cases[i].folder, "x", path, NULL), 0);
        assert_string_equal(path, cases[i].joined);
    }
}

/* The longest that fits, and one more, which leaves the output as it was. */
static void test_join_refuses_long_paths(void **state) {
    char folder[PATH_MAX + 1], path[PATH_MAX];
    struct error err = {0};
    memset(folder, 'a', sizeof(folder));
    folder[PATH_MAX - 3] = '\0';
    assert_int_equal(input_file_join_path(folder, "x", path, &err), 0);
    assert_int_equal(strlen(path), PATH_MAX - 1);
    path[0] = '#';
    assert_int_equal(input_file_join_path(folder, "xy", path, &err), -1);
    assert_int_equal(path[0], '#');
    assert_int_equal(err.code, ERROR_MODEL);
    assert_non_null(strstr(err.message, "the path is too long"));
}

static void test_what_is_there(void **state) {
    struct temporary_folder folder;
    temporary_folder_make(&folder);
    temporary_write(&folder, "f", "x", 1);
    assert_true(input_file_is_folder(folder.path));
    assert_false(input_file_is_folder(temporary_file(&folder, "f")));
    assert_false(input_file_is_folder(temporary_file(&folder, "g")));
    assert_false(input_file_is_missing(folder.path));
    assert_false(input_file_is_missing(temporary_file(&folder, "f")));
    assert_true(input_file_is_missing(temporary_file(&folder, "g")));
    assert_false(input_file_is_missing(temporary_file(&folder, "f/g")));
    temporary_folder_remove(&folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_join),
        cmocka_unit_test(test_join_refuses_long_paths),
        cmocka_unit_test(test_what_is_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
