/* Errors in Anthropic's shape. */
#include "server/api/messages/messages_error.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

static void every_status_has_a_type(void **state) {
    static const struct {
        int status;
        const char *type;
    } types[] = {
        {400, "invalid_request_error"},
        {401, "authentication_error"},
        {403, "permission_error"},
        {404, "not_found_error"},
        {405, "invalid_request_error"},
        {408, "timeout_error"},
        {413, "request_too_large"},
        {421, "invalid_request_error"},
        {429, "rate_limit_error"},
        {500, "api_error"},
        {501, "api_error"},
        {503, "overloaded_error"},
    };
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        assert_string_equal(messages_error_type(types[i].status), types[i].type);
}

static void an_error_has_its_shape(void **state) {
    struct byte_buffer out = {0};
    struct api_error err;
    api_error_set(&err, 400, "invalid_request_error", "code", "a", "a is \"b\"");
    messages_error_format(&err, "req-1", &out);
    err.code = NULL;
    messages_error_format(&err, NULL, &out);
    byte_buffer_append(&out, "", 1);
    assert_string_equal(out.data,
                        "{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\","
                        "\"message\":\"a is \\\"b\\\"\",\"details\":{\"error_code\":"
                        "\"code\"}},\"request_id\":\"req-1\"},"
                        "{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\","
                        "\"message\":\"a is \\\"b\\\"\"}}");
    byte_buffer_finish(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_status_has_a_type),
        cmocka_unit_test(an_error_has_its_shape),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
