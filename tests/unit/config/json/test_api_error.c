#include "config/json/api_error.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>
#include <cmocka.h>

static cJSON *formatted(const struct api_error *err) {
    struct byte_buffer out = {0};
    api_error_format(err, &out);
    const char *end;
    cJSON *json = cJSON_ParseWithLengthOpts(out.data, out.length, &end, false);
    assert_non_null(json);
    assert_ptr_equal(end, out.data + out.length);
    byte_buffer_finish(&out);
    return json;
}

static const char *member(const cJSON *json, const char *name) {
    return cJSON_GetStringValue(
        cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItemCaseSensitive(json, "error"), name));
}

static void all_fields_are_written(void **state) {
    struct api_error err;
    assert_int_equal(api_error_set(&err, 404, "invalid_request_error", "model_not_found", "model",
                                   "no model \"%s\"", "a\\b\n"),
                     -1);
    assert_int_equal(err.status, 404);
    cJSON *json = formatted(&err);
    assert_string_equal(member(json, "message"), "no model \"a\\b\n\"");
    assert_string_equal(member(json, "type"), "invalid_request_error");
    assert_string_equal(member(json, "param"), "model");
    assert_string_equal(member(json, "code"), "model_not_found");
    cJSON_Delete(json);
}

static void absent_param_and_code_are_null(void **state) {
    struct api_error err;
    api_error_set(&err, 500, "server_error", NULL, NULL, "x");
    cJSON *json = formatted(&err);
    const cJSON *error = cJSON_GetObjectItemCaseSensitive(json, "error");
    assert_true(cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(error, "param")));
    assert_true(cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(error, "code")));
    cJSON_Delete(json);
}

static void long_and_broken_text_stays_valid(void **state) {
    char message[2000];
    memset(message, 0xC3, sizeof(message) - 1); /* cut-off characters all along */
    message[sizeof(message) - 1] = '\0';
    struct api_error err;
    api_error_set(&err, 400, "invalid_request_error", NULL, message, "%s", message);
    cJSON *json = formatted(&err);
    assert_memory_equal(member(json, "message"), "\xEF\xBF\xBD", 3);
    cJSON_Delete(json);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_fields_are_written),
        cmocka_unit_test(absent_param_and_code_are_null),
        cmocka_unit_test(long_and_broken_text_stays_valid),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
