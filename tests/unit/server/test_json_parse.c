#include "server/json/json_parse.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void a_good_body_becomes_a_tree(void **state) {
    static const char text[] = " {\"a\":[1,\"\\u00e9\"]}\n";
    struct api_error err;
    cJSON *json = json_parse(text, sizeof(text) - 1, &err);
    assert_non_null(json);
    const cJSON *array = cJSON_GetObjectItemCaseSensitive(json, "a");
    assert_int_equal(cJSON_GetArraySize(array), 2);
    assert_string_equal(array->child->next->valuestring, "\xC3\xA9");
    cJSON_Delete(json);
}

/* cJSON alone would take each of them but the first; config/json_scan has the full list. */
static void a_bad_body_is_a_clients_fault(void **state) {
    static const char *const bad[] = {
        "{",
        "{}x",
        "{\"a\":01}",
        "{\"a\":1e400}",
        "{\"a\":1.}",
        "{\"a\":\"\n\"}",
        "{\"a\":\"\\u0000\"}",
        "{\"a\":1,\"a\":2}",
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct api_error err = {0};
        assert_null(json_parse(bad[i], strlen(bad[i]), &err));
        assert_int_equal(err.status, 400);
        assert_string_equal(err.code, "invalid_json");
        assert_non_null(strstr(err.message, "The body is not valid JSON: "));
    }
}

static void the_number_of_values_is_bounded(void **state) {
    size_t length = 6;
    char *text = malloc(2 * (JSON_PARSE_MAX_NODES + 8));
    assert_non_null(text);
    memcpy(text, "{\"a\":[", length);
    for (int i = 0; i < JSON_PARSE_MAX_NODES; i++, length += 2)
        memcpy(text + length, "1,", 2);
    memcpy(text + length, "1]}", 3);
    struct api_error err = {0};
    assert_null(json_parse(text, length + 3, &err));
    assert_int_equal(err.status, 400);
    assert_non_null(strstr(err.message, "1000000 are allowed"));
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_good_body_becomes_a_tree),
        cmocka_unit_test(a_bad_body_is_a_clients_fault),
        cmocka_unit_test(the_number_of_values_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
