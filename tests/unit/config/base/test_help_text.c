/* Help texts at several widths. */
#include "config/base/help_text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void check(const char *text, size_t width, const char *expected) {
    struct byte_buffer out = {0};
    help_text_wrap(text, width, &out);
    byte_buffer_append(&out, "", 1);
    assert_false(out.failed);
    assert_string_equal(out.data, expected);
    byte_buffer_finish(&out);
}

static void test_paragraphs(void **state) {
    check("one two three\n", 80, "one two three\n");
    check("one two three\n", 13, "one two three\n");
    check("one two three\n", 12, "one two\nthree\n");
    check("  one two three\n\nnext\n", 9, "  one two\n  three\n\nnext\n");
    check("a verylongword b", 6, "a\nverylongword\nb\n");
    check("", 6, "");
}

static void test_usage(void **state) {
    check("usage: quire run MODEL [QUESTION]\n       quire run --help\n", 26,
          "usage: quire run MODEL\n             [QUESTION]\n       quire run --help\n");
}

static void test_terms(void **state) {
    check("  --once\tshow it once\n  --interval N\tof looks\n", 80,
          "  --once        show it once\n  --interval N  of looks\n");
    check("  --once\tshow it once\n  --interval N\tof looks\n", 24,
          "  --once        show it\n                once\n  --interval N  of looks\n");
    check("  A\tthe smallest column\n", 80, "  A       the smallest column\n");
    check("  --a-name-longer-than-the-column X\tmeaning\n  B\tb\n", 80,
          "  --a-name-longer-than-the-column X\n          meaning\n  B       b\n");
}

static void test_width(void **state) {
    FILE *file = tmpfile();
    assert_non_null(file);
    unsetenv("COLUMNS");
    assert_int_equal(help_text_width(file), 80);
    setenv("COLUMNS", "120", 1);
    assert_int_equal(help_text_width(file), 120);
    setenv("COLUMNS", "7", 1);
    assert_int_equal(help_text_width(file), 40);
    setenv("COLUMNS", "100000", 1);
    assert_int_equal(help_text_width(file), 200);
    setenv("COLUMNS", "wide", 1);
    assert_int_equal(help_text_width(file), 80);
    fclose(file);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_paragraphs),
        cmocka_unit_test(test_usage),
        cmocka_unit_test(test_terms),
        cmocka_unit_test(test_width),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
