/* The examples of the standard, and what it says is none. */
#include "server/telemetry/trace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define TRACE "4bf92f3577b34da6a3ce929d0e0e4736"
#define SPAN "00f067aa0ba902b7"

static void check(const char *text, bool is_good, bool is_sampled) {
    struct trace_context context;
    memset(&context, 0xff, sizeof(context));
    trace_context_read(text, &context);
    assert_string_equal(context.trace_id, is_good ? TRACE : "");
    assert_string_equal(context.parent_id, is_good ? SPAN : "");
    assert_int_equal(context.is_sampled, is_sampled);
}

static void test_good(void **state) {
    check("00-" TRACE "-" SPAN "-01", true, true);
    check("00-" TRACE "-" SPAN "-00", true, false);
    check("00-" TRACE "-" SPAN "-fe", true, false);
    check("00-" TRACE "-" SPAN "-03", true, true);
    check("01-" TRACE "-" SPAN "-01", true, true);
    check("cc-" TRACE "-" SPAN "-01-what-comes", true, true);
}

static void test_bad(void **state) {
    static const char *const bad[] = {
        NULL,
        "",
        "0",
        "00",
        "00-",
        "00-" TRACE,
        "00-" TRACE "-" SPAN,
        "00-" TRACE "-" SPAN "-",
        "00-" TRACE "-" SPAN "-1",
        "00-" TRACE "-" SPAN "-010",
        "00-" TRACE "-" SPAN "-01-",
        "00-" TRACE "-" SPAN "-01-more",
        "cc-" TRACE "-" SPAN "-01.more",
        "ff-" TRACE "-" SPAN "-01",
        "0g-" TRACE "-" SPAN "-01",
        "00-" TRACE "-" SPAN "-0x",
        "00-00000000000000000000000000000000-" SPAN "-01",
        "00-" TRACE "-0000000000000000-01",
        "00-4BF92F3577B34DA6A3CE929D0E0E4736-" SPAN "-01",
        "00-" TRACE "a-" SPAN "-01",
        "00-" TRACE "_" SPAN "-01",
        " 00-" TRACE "-" SPAN "-01",
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        check(bad[i], false, false);
}

static void test_begin(void **state) {
    struct trace_context first, second;
    assert_int_equal(trace_context_begin(&first), 0);
    assert_int_equal(trace_context_begin(&second), 0);
    assert_int_equal(strspn(first.trace_id, "0123456789abcdef"), TRACE_ID_DIGITS);
    assert_string_not_equal(first.trace_id, second.trace_id);
    assert_string_equal(first.parent_id, "");
    assert_true(first.is_sampled);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),
        cmocka_unit_test(test_bad),
        cmocka_unit_test(test_begin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
