#include "config/base/error.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void test_a_message_is_one_line(void **state) {
    (void)state;
    struct error err;
    assert_int_equal(
        error_set(&err, ERROR_MODEL, "m.gguf: tensor '%s': %d", "a\nb\rc\x1b[2Jd\x7f", 7), -1);
    assert_int_equal(err.code, ERROR_MODEL);
    assert_string_equal(err.message, "m.gguf: tensor 'a?b?c?[2Jd?': 7");
}

static void test_text_of_other_languages_stays(void **state) {
    (void)state;
    struct error err;
    error_set(&err, ERROR_IO, "%s: is missing", "/models/größe/模型");
    assert_string_equal(err.message, "/models/größe/模型: is missing");
}

static void test_a_long_message_is_cut(void **state) {
    (void)state;
    struct error err;
    char name[2 * sizeof(err.message)];
    memset(name, '\n', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    error_set(&err, ERROR_CONFIG, "%s", name);
    assert_int_equal(strlen(err.message), sizeof(err.message) - 1);
    assert_int_equal(strspn(err.message, "?"), sizeof(err.message) - 1);
}

static void test_no_one_wants_the_message(void **state) {
    (void)state;
    assert_int_equal(error_set(NULL, ERROR_IO, "%s", "lost"), -1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_message_is_one_line),
        cmocka_unit_test(test_text_of_other_languages_stays),
        cmocka_unit_test(test_a_long_message_is_cut),
        cmocka_unit_test(test_no_one_wants_the_message),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
