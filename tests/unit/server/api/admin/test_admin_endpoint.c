#include "server/api/admin/admin_endpoint.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static int read_level(const char *body, enum log_level *level, struct api_error *err) {
    return admin_endpoint_read_level(body, strlen(body), level, err);
}

static void test_levels_are_read(void **state) {
    struct api_error err;
    enum log_level level;
    assert_int_equal(read_level("{\"level\": \"error\"}", &level, &err), 0);
    assert_int_equal(level, LOG_ERROR);
    assert_int_equal(read_level("{\"level\": \"debug\"}", &level, &err), 0);
    assert_int_equal(level, LOG_DEBUG);
    assert_string_equal(log_level_name(LOG_WARNING), "warning");
}

static void test_other_bodies_are_refused(void **state) {
    static const struct {
        const char *body, *said;
    } cases[] = {
        {"", "JSON"},
        {"[]", "object"},
        {"{}", "warning"},
        {"{\"level\": null}", "warning"},
        {"{\"level\": \"loud\"}", "loud"},
        {"{\"level\": 3}", "level"},
        {"{\"level\": \"debug\", \"x\": 1}", "x must be absent"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct api_error err = {0};
        enum log_level level = LOG_INFO;
        assert_int_equal(read_level(cases[i].body, &level, &err), -1);
        assert_int_equal(err.status, 400);
        assert_int_equal(level, LOG_INFO);
        if (strstr(err.message, cases[i].said) == NULL)
            fail_msg("%s: %s", cases[i].body, err.message);
    }
}

static void test_status_is_one_object(void **state) {
    const struct engine_stats stats = {.num_running = 2, .num_waiting = 3, .num_blocks = 9};
    const struct admin_status status = {
        .state = "draining", .num_in_flight = 4, .log_level = LOG_INFO, .stats = &stats};
    struct byte_buffer out = {0};
    admin_endpoint_write_status(&status, &out);
    byte_buffer_append(&out, "", 1);
    assert_non_null(strstr(out.data, "{\"state\":\"draining\""));
    assert_non_null(strstr(out.data, "\"log_level\":\"info\""));
    assert_non_null(strstr(out.data, "\"requests_in_flight\":4"));
    assert_non_null(strstr(out.data, "\"sequences_running\":2,\"sequences_waiting\":3"));
    byte_buffer_finish(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_levels_are_read),
        cmocka_unit_test(test_other_bodies_are_refused),
        cmocka_unit_test(test_status_is_one_object),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
