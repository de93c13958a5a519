#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "server/http/http_admission.h"

#include <string.h>

static void seconds_are_read(void **state) {
    static const struct {
        const char *text;
        int64_t ms;
    } good[] = {{NULL, 0},
                {"1", 1000},
                {"30.5", 30500},
                {"0.001", 1},
                {"007.25", 7250},
                {"0.0019", 1},
                {"86400", 86400000},
                {"86400.000", 86400000},
                {"1.1234567890123456789", 1123}};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        struct api_error err;
        int64_t ms = -1;
        assert_int_equal(http_admission_read_timeout(good[i].text, &ms, &err), 0);
        assert_int_equal(ms, good[i].ms);
    }
}

static void anything_else_is_refused(void **state) {
    static const char *const bad[] = {"",      "0",      "0.0009",    "-1",
                                      "+1",    " 1",     "1 ",        "1s",
                                      "1e3",   ".5",     "5.",        "1.2.3",
                                      "1,5",   "0x10",   "inf",       "nan",
                                      "86401", "100000", "86400.001", "99999999999999999999999"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct api_error err;
        int64_t ms;
        assert_int_equal(http_admission_read_timeout(bad[i], &ms, &err), -1);
        assert_int_equal(err.status, 400);
        assert_string_equal(err.param, "X-Request-Timeout");
        assert_non_null(strstr(err.message, "0.001 to 86400"));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(seconds_are_read),
        cmocka_unit_test(anything_else_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
