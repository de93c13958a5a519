#include "server/output/json_stream.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* Pushes text until the value is over; *out_at is where. */
static enum json_stream_step scan(const char *text, size_t *out_at) {
    struct json_stream json;
    json_stream_init(&json);
    for (size_t i = 0; text[i] != '\0'; i++) {
        enum json_stream_step step = json_stream_push(&json, text[i]);
        *out_at = i;
        if (step != JSON_STREAM_MORE)
            return step;
    }
    return JSON_STREAM_MORE;
}

/* Each is followed by a '|'. */
static void values_end_at_their_last_byte(void **state) {
    static const char *const values[] = {
        "{}|",
        " \n{\"a\" : [ ] , \"b\":{}}|",
        "[[],{},\"\",0,true , null]|",
        "\"\"|",
        "\"a\\\"b\"|",
        "\"\\u00eF\\n\\/\"|",
        "[1,-0.5e+10,2E3 ,0]|",
        "true|",
        "false|",
        "null|",
        "\"raw\ncontrol\"|",
    };
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        size_t at = 0;
        assert_int_equal(scan(values[i], &at), JSON_STREAM_DONE);
        assert_int_equal(at, strlen(values[i]) - 2);
    }
}

static void numbers_end_before_what_follows(void **state) {
    static const char *const numbers[] = {"0|", "-12|", "0.50|", "1e9|", "7E-01|", "00"};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        size_t at = 0;
        assert_int_equal(scan(numbers[i], &at), JSON_STREAM_DONE_BEFORE);
        assert_int_equal(at, strlen(numbers[i]) - 1);
    }
}

/* Bad at the last byte. */
static void what_is_no_json_is_bad(void **state) {
    static const char *const texts[] = {
        "}",     "[,",    "[1}",  "{]",      "{a",      "{1",    "{\"a\",", "{\"a\":}",
        "[01",   "-a",    "[1.]", "[1.e",    "[1e]",    "[1e+-", "[+",      "tru_",
        "fals ", "nul\"", "[1 2", "[\"\"\"", "{\"a\"}", "[.",
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        size_t at = 0;
        assert_int_equal(scan(texts[i], &at), JSON_STREAM_BAD);
        assert_int_equal(at, strlen(texts[i]) - 1);
    }
}

#define ZEROS_40 "0000000000000000000000000000000000000000"

/* Strict JSON is written as it stands, the rest as that; what no reader takes as the nearest. */
static void what_models_write_becomes_json(void **state) {
    static const char *const texts[][2] = {
        {"{\"a\" : [1 ,2.50,\n -3e+2], \"b\": \"\\n\\u00e9\\/\"}",
         "{\"a\" : [1 ,2.50,\n -3e+2], \"b\": \"\\n\\u00e9\\/\"}"},
        {"[True,False, None,]", "[true,false, null]"},
        {"{'a': 'b\"c\\'d\\\"e',\n}", "{\"a\": \"b\\\"c'd\\\"e\"}"},
        {"\"\\$ \\d \\u1 \\u12g \\\n\"", "\"\\\\$ \\\\d \\\\u1 \\\\u12g \\\\\\u000a\""},
        {"\"\\u\"", "\"\\\\u\""},
        {"\"a\tb\"", "\"a\\u0009b\""},
        {"[1e400,-1E+999999999999999999999,1e-400]",
         "[1.7976931348623157e+308,-1.7976931348623157e+308,1e-400]"},
        {"[1" ZEROS_40 "0000000000000000000000 ,1" ZEROS_40 "00000000000000000000000]",
         "[1" ZEROS_40 "0000000000000000000000 ,1e+63]"},
        {"[1" ZEROS_40 ZEROS_40 "e2,-0.5" ZEROS_40 ZEROS_40 "e-3,2" ZEROS_40 ZEROS_40 ".5e-80]",
         "[1e+82,-0.0005,2]"},
        {"'it'", "\"it\""},
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct json_stream json;
        char out[256];
        size_t length = 0;
        json_stream_init(&json);
        for (const char *at = texts[i][0]; *at != '\0'; at++) {
            enum json_stream_step step = json_stream_push(&json, *at);
            assert_int_equal(step, at[1] == '\0' ? JSON_STREAM_DONE : JSON_STREAM_MORE);
            memcpy(out + length, json.out, json.num_out);
            length += json.num_out;
        }
        out[length] = '\0';
        assert_string_equal(out, texts[i][1]);
    }
}

/* White space behind a comma has a bound, beyond which it is left out. */
static void a_gap_is_bounded(void **state) {
    struct json_stream json;
    json_stream_init(&json);
    json_stream_push(&json, '[');
    json_stream_push(&json, '1');
    json_stream_push(&json, ',');
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(json_stream_push(&json, ' '), JSON_STREAM_MORE);
        assert_int_equal(json.num_out, 0);
    }
    assert_int_equal(json_stream_push(&json, '2'), JSON_STREAM_MORE);
    assert_int_equal(json.num_out, JSON_STREAM_MAX_GAP);
}

static void depth_is_bounded(void **state) {
    struct json_stream json;
    json_stream_init(&json);
    for (int i = 0; i < JSON_STREAM_MAX_DEPTH; i++)
        assert_int_equal(json_stream_push(&json, '['), JSON_STREAM_MORE);
    struct json_stream deeper = json;
    assert_int_equal(json_stream_push(&deeper, '{'), JSON_STREAM_BAD);
    for (int i = 1; i < JSON_STREAM_MAX_DEPTH; i++)
        assert_int_equal(json_stream_push(&json, ']'), JSON_STREAM_MORE);
    assert_int_equal(json_stream_push(&json, ']'), JSON_STREAM_DONE);
}

/* The deepest value, as an argument of a call in a message of /v1/messages. */
static void the_deepest_value_can_come_back(void **state) {
    static const char head[] = "{\"messages\":[{\"content\":[{\"input\":{\"a\":", tail[] = "}}]}]}";
    static const struct json_limits limits = {.max_depth = JSON_MAX_DEPTH, .max_nodes = 100};
    char text[sizeof(head) + sizeof(tail) + (size_t)2 * JSON_STREAM_MAX_DEPTH] = {0};
    struct error err = {0};
    strcat(text, head);
    memset(text + strlen(text), '[', JSON_STREAM_MAX_DEPTH);
    memset(text + strlen(text), ']', JSON_STREAM_MAX_DEPTH);
    strcat(text, tail);
    cJSON *json = json_read(text, strlen(text), &limits, &err);
    assert_non_null(json);
    cJSON_Delete(json);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_end_at_their_last_byte),
        cmocka_unit_test(numbers_end_before_what_follows),
        cmocka_unit_test(what_is_no_json_is_bad),
        cmocka_unit_test(what_models_write_becomes_json),
        cmocka_unit_test(a_gap_is_bounded),
        cmocka_unit_test(depth_is_bounded),
        cmocka_unit_test(the_deepest_value_can_come_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
