#include "config/json/json_integer.h"
#include "config/json/json_parse.h"
#include "config/json/json_write.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
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

/* cJSON alone would take each of them but the first; test_json_read.c has the full list. */
static void a_bad_body_is_a_clients_fault(void **state) {
    static const char *const bad[] = {
        "{",
        "{}x",
        "{\"a\":01}",
        "{\"a\":1e400}",
        "{\"a\":1.}",
        "{\"a\":\"\n\"}",
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

static void escapes_that_no_text_holds_become_replacement_characters(void **state) {
    static const struct {
        const char *escapes, *text;
    } cases[] = {
        {"a\\u0000b", "a\xEF\xBF\xBD"
                      "b"},
        {"\\ud83d", "\xEF\xBF\xBD"},
        {"\\ude00\\u0000", "\xEF\xBF\xBD\xEF\xBF\xBD"},
        {"\\ud83d\\ud83d\\ude00", "\xEF\xBF\xBD\xF0\x9F\x98\x80"},
        {"\\\\u0000", "\\u0000"},
        {"\\ud83d\\\\u0000", "\xEF\xBF\xBD\\u0000"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[128];
        struct api_error err;
        int length = snprintf(text, sizeof(text), "{\"%s\":[1.0,\"%s\"]}", cases[i].escapes,
                              cases[i].escapes);
        cJSON *json = json_parse(text, (size_t)length, &err);
        assert_non_null(json);
        assert_string_equal(json->child->string, cases[i].text);
        assert_string_equal(json->child->child->next->valuestring, cases[i].text);
        assert_false(json_integer_is_written(json->child->child));
        cJSON_Delete(json);
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

/* Integers in text: what is read, or that they are none of 64 bits. */
static void integers_are_read_from_their_digits(void **state) {
    static const struct {
        const char *text;
        bool is_integer, has_digits;
        int64_t value;
        bool is_float; /* as it is written */
    } cases[] = {
        {"0", true, false, 0},
        {"-0", true, false, 0},
        {"3.0", true, false, 3, true},
        {"1e3", true, false, 1000, true},
        {"0.5", false, false, 0, true},
        {"\"7\"", false, false, 0, true},
        {"9007199254740991", true, false, INT64_C(9007199254740991)},
        {"9007199254740992", true, true, INT64_C(9007199254740992)},
        {"-9007199254740993", true, true, -INT64_C(9007199254740993)},
        {"9223372036854775807", true, true, INT64_MAX},
        {"-9223372036854775808", true, true, INT64_MIN},
        {"9223372036854775808", false, true, 0},
        {"-9223372036854775809", false, true, 0},
        {"123456789012345678901234567890", false, true, 0},
        {"1e300", false, false, 0, true},
        {"9.3e18", false, false, 0, true},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[128];
        struct api_error err;
        int64_t value = 0;
        /* Digits in strings and keys are no numbers, nor are those of other items mixed up. */
        int length = snprintf(text, sizeof(text),
                              "{\"-1\\\"\":[\"9007199254740999\",1,%s],\"b\":2}", cases[i].text);
        cJSON *json = json_parse(text, (size_t)length, &err);
        assert_non_null(json);
        const cJSON *item = json->child->child->next->next;
        if (json_integer_read(item, &value) != cases[i].is_integer)
            fail_msg("%s", cases[i].text);
        assert_int_equal(cases[i].is_integer ? value : 0, cases[i].value);
        assert_int_equal(json_integer_digits(item) != NULL, cases[i].has_digits);
        assert_int_equal(json_integer_is_written(item), !cases[i].is_float);
        assert_null(json_integer_digits(item->prev));
        assert_null(json_integer_digits(json->child->next));
        if (cases[i].has_digits)
            assert_string_equal(json_integer_digits(item), cases[i].text);
        cJSON_Delete(json);
    }
}

static void a_tree_is_written_with_all_its_digits(void **state) {
    static const char text[] =
        "{\"a\":[9007199254740993,-18446744073709551615,9007199254740991,1000000000000000,"
        "0.30000000000000004,-1.7976931348623157e+308,5e-324,1.0e-400,"
        "0.12345678901234567890,0.5,1,1e+300,true,"
        "false,null,{},[]],\"\xC3\xA9\\n\\\"\":\"x\"}";
    struct api_error err;
    struct byte_buffer out = {0};
    cJSON *json = json_parse(text, sizeof(text) - 1, &err), *copy = cJSON_Duplicate(json, true);
    json_write_tree(&out, copy);
    byte_buffer_append(&out, "", 1);
    assert_string_equal(out.data, text);
    byte_buffer_finish(&out);
    cJSON_Delete(copy);
    cJSON_Delete(json);
}

static void doubles_are_written_in_their_shortest_form(void **state) {
    static const struct {
        double value;
        const char *text;
    } cases[] = {{0.1 + 0.2, "0.30000000000000004"},
                 {1e15, "1000000000000000"},
                 {5e-324, "5e-324"},
                 {9007199254740991, "9007199254740991"},
                 {-2.5, "-2.5"},
                 {1e300, "1e+300"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[JSON_NUMBER_BYTES];
        cJSON *item = cJSON_CreateNumber(cases[i].value);
        json_integer_print(item, text, sizeof(text));
        assert_string_equal(text, cases[i].text);
        cJSON_Delete(item);
    }
}

static void the_number_of_fields_is_bounded(void **state) {
    struct byte_buffer body = {0};
    struct api_error err;
    for (int i = 0; i < JSON_PARSE_MAX_FIELDS; i++)
        byte_buffer_printf(&body, "%s\"k%d\":1", i == 0 ? "{" : ",", i);
    byte_buffer_append_text(&body, "}");
    cJSON *json = json_parse(body.data, body.length, &err);
    assert_non_null(json);
    cJSON_Delete(json);
    body.length--;
    byte_buffer_append_text(&body, ",\"one more\":1}");
    assert_null(json_parse(body.data, body.length, &err));
    assert_int_equal(err.status, 400);
    assert_string_equal(err.code, "too_many_fields");
    byte_buffer_finish(&body);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_good_body_becomes_a_tree),
        cmocka_unit_test(escapes_that_no_text_holds_become_replacement_characters),
        cmocka_unit_test(integers_are_read_from_their_digits),
        cmocka_unit_test(a_tree_is_written_with_all_its_digits),
        cmocka_unit_test(doubles_are_written_in_their_shortest_form),
        cmocka_unit_test(a_bad_body_is_a_clients_fault),
        cmocka_unit_test(the_number_of_values_is_bounded),
        cmocka_unit_test(the_number_of_fields_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
