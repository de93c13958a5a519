#include "config/json/json_read.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct json_limits limits = {JSON_MAX_DEPTH, 1000000};

struct sample {
    const char *text;
    size_t length;
    const char *message; /* part of the error's message */
};

#define SAMPLE(text, message)                                                                      \
    { text, sizeof(text) - 1, message }

static const struct sample good[] = {
    SAMPLE("{}", NULL),
    SAMPLE(" \t\r\n{ } \n", NULL),
    SAMPLE("{\"a\":[],\"b\":{},\"c\":[{}],\"d\":[[]]}", NULL),
    SAMPLE("{\"a\":[0,-0,1,-1,10,0.5,-0.5e1,1E+2,1e-400,1.7976931348623157e308]}", NULL),
    SAMPLE("{\"a\":[true,false,null]}", NULL),
    SAMPLE("{\"a\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0001\\u00e9\\uD83D\\uDE00\\udbff\\udfff\"}",
           NULL),
    SAMPLE("{\"\":1,\" \":2,\"a\":3,\"A\":4}", NULL),
    SAMPLE("{\"a\":{\"a\":{\"a\":1}},\"b\":[{\"a\":1},{\"a\":1}]}", NULL),
    SAMPLE("{\"a\":\"\x7f\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\"}", NULL),
};

static const struct sample bad[] = {
    SAMPLE("", "ends at byte 0"),
    SAMPLE("   ", "ends at byte 3"),
    SAMPLE("[]", "unexpected '[' at byte 0"),
    SAMPLE("\"a\"", "an object is expected"),
    SAMPLE("1", "an object is expected"),
    SAMPLE("\xEF\xBB\xBF{}", "unexpected byte 0xef at byte 0"),
    SAMPLE("{", "a key in quotes"),
    SAMPLE("{}x", "unexpected 'x' at byte 2 where the end is expected"),
    SAMPLE("{}{}", "at byte 2"),
    SAMPLE("{}\0", "byte 0x00 at byte 2"),
    SAMPLE("{\"a\":1}}", "at byte 7"),
    SAMPLE("{\"a\"}", "unexpected '}' at byte 4 where ':' is expected"),
    SAMPLE("{\"a\" 1}", "':'"),
    SAMPLE("{\"a\":}", "unexpected '}' at byte 5 where a value"),
    SAMPLE("{\"a\":1,}", "unexpected '}' at byte 7 where a key"),
    SAMPLE("{\"a\":1 \"b\":2}", "',' or '}'"),
    SAMPLE("{,}", "a key in quotes"),
    SAMPLE("{a:1}", "a key in quotes"),
    SAMPLE("{'a':1}", "a key in quotes"),
    SAMPLE("{\"a\":[1,]}", "a value is expected"),
    SAMPLE("{\"a\":[1 2]}", "',' or ']'"),
    SAMPLE("{\"a\":[1}", "',' or ']'"),
    SAMPLE("{\"a\":[,]}", "a value"),
    SAMPLE("{\"a\":[", "ends at byte 6"),
    SAMPLE("{\"a\":01}", "a leading zero at byte 5"),
    SAMPLE("{\"a\":-01}", "a leading zero at byte 5"),
    SAMPLE("{\"a\":1.}", "a digit"),
    SAMPLE("{\"a\":.5}", "a value"),
    SAMPLE("{\"a\":+1}", "a value"),
    SAMPLE("{\"a\":-}", "a digit"),
    SAMPLE("{\"a\":1e}", "a digit"),
    SAMPLE("{\"a\":1e+}", "a digit"),
    SAMPLE("{\"a\":1.e5}", "a digit"),
    SAMPLE("{\"a\":0x10}", "',' or '}'"),
    SAMPLE("{\"a\":1e400}", "a number out of range at byte 5"),
    SAMPLE("{\"a\":-1e400}", "a number out of range at byte 5"),
    SAMPLE("{\"a\":NaN}", "a value"),
    SAMPLE("{\"a\":Infinity}", "a value"),
    SAMPLE("{\"a\":nul}", "a value"),
    SAMPLE("{\"a\":True}", "a value"),
    SAMPLE("{\"a\":nullx}", "',' or '}'"),
    SAMPLE("{\"a\":1234567890123456789012345678901234567890123456789012345678901234}",
           "more than 63 characters"),
    SAMPLE("{\"a\":\"b", "not closed that begins at byte 5"),
    SAMPLE("{\"a\":\"b\\\"}", "not closed"),
    SAMPLE("{\"a\":\"\n\"}", "raw control character in a string at byte 6"),
    SAMPLE("{\"a\":\"\x01\"}", "raw control character"),
    SAMPLE("{\"a\":\"b\0c\"}", "raw control character in a string at byte 7"),
    SAMPLE("{\"a\":\"b\\u0000c\"}", "\\u0000 is not allowed in a string at byte 7"),
    SAMPLE("{\"a\\u0000\":1}", "\\u0000"),
    SAMPLE("{\"a\":\"\\x\"}", "an escape"),
    SAMPLE("{\"a\":\"\\u12g4\"}", "a hexadecimal digit"),
    SAMPLE("{\"a\":\"\\u12\"}", "a hexadecimal digit"),
    SAMPLE("{\"a\":\"\\ud800\"}", "unpaired surrogate at byte 6"),
    SAMPLE("{\"a\":\"\\udc00\"}", "unpaired surrogate"),
    SAMPLE("{\"a\":\"\\ud800\\ud800\"}", "unpaired surrogate"),
    SAMPLE("{\"a\":\"\\ud800x\"}", "unpaired surrogate"),
    SAMPLE("{\"a\":\"\\ud800\\n\"}", "unpaired surrogate"),
    SAMPLE("{\"a\":\"\xFF\"}", "invalid UTF-8 at byte 6"),
    SAMPLE("{\"a\":\"\xC0\x80\"}", "invalid UTF-8"),
    SAMPLE("{\"a\":\"\xED\xA0\x80\"}", "invalid UTF-8"),
    SAMPLE("{\"a\":\"\xE2\x82\"}", "invalid UTF-8"),
    SAMPLE("{\"a\":\"\xF5\x80\x80\x80\"}", "invalid UTF-8"),
    SAMPLE("{\"\xFF\":1}", "invalid UTF-8"),
    SAMPLE("{\"a\":1,\"a\":2}", "a key that the object already has at byte 7"),
    SAMPLE("{\"a\":1,\"\\u0061\":2}", "already has at byte 7"),
    SAMPLE("{\"\\u00e9\":1,\"\xC3\xA9\":2}", "already has"),
    SAMPLE("{\"\\ud83d\\ude00\":1,\"\xF0\x9F\x98\x80\":2}", "already has"),
    SAMPLE("{\"\":1,\"\":2}", "already has"),
    SAMPLE("{\"b\":[{\"x\":1,\"y\":2,\"x\":3}]}", "already has at byte 19"),
    SAMPLE("{\"a\":1 /* c */}", "',' or '}'"),
};

/* The bytes stand at the very end of their allocation, so that reading past them is seen. */
static int read_with(const char *text, size_t length, const struct json_limits *bounds,
                     struct error *err) {
    char *copy = malloc(length > 0 ? length : 1);
    assert_non_null(copy);
    memcpy(copy, text, length);
    cJSON *json = json_read(copy, length, bounds, err);
    free(copy);
    cJSON_Delete(json);
    return json != NULL ? 0 : -1;
}

static int scan(const char *text, size_t length, struct error *err) {
    return read_with(text, length, &limits, err);
}

static void limits_let_more_pass(void **state) {
    static const struct json_limits more = {JSON_MAX_DEPTH, 100, .takes_any_escape = true,
                                            .takes_doubled_keys = true};
    static const char *const texts[] = {"{\"a\\u0000\":\"\\u0000\"}",
                                        "{\"\\ud800\":\"\\udc00\\ud800\"}",
                                        "{\"a\":1,\"a\":2,\"\\ud83d\\ude00\":3}"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct error err = {0};
        assert_int_equal(read_with(texts[i], strlen(texts[i]), &limits, &err), -1);
        assert_int_equal(read_with(texts[i], strlen(texts[i]), &more, &err), 0);
    }
    struct json_limits keys = more;
    struct error err = {0};
    keys.takes_doubled_keys = false;
    static const char halves[] = "{\"\\ud800\":1,\"\":2}", same[] = "{\"\\ud800\":1,\"\\udc00\":2}";
    assert_int_equal(read_with(halves, strlen(halves), &keys, &err), 0);
    assert_int_equal(read_with(same, strlen(same), &keys, &err), -1);
    /* both are read as U+FFFD */
    static const char nul[] = "{\"a\\u0000\":1,\"a\xEF\xBF\xBD\":2}";
    assert_int_equal(read_with(nul, strlen(nul), &keys, &err), -1);
}

static void good_texts_pass(void **state) {
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        struct error err = {0};
        if (scan(good[i].text, good[i].length, &err) != 0)
            fail_msg("refused %s: %s", good[i].text, err.message);
    }
}

/* Where cJSON's own parser is right, the trees are the same, the links of lists included. */
static void a_tree_is_as_cjson_has_it(void **state) {
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        struct error err;
        cJSON *json = json_read(good[i].text, good[i].length, &limits, &err);
        cJSON *theirs = cJSON_ParseWithLength(good[i].text, good[i].length);
        assert_non_null(json);
        if (!cJSON_Compare(json, theirs, true))
            fail_msg("%s", good[i].text);
        const cJSON *item, *last = NULL;
        cJSON_ArrayForEach(item, json) {
            assert_ptr_equal(item->prev, item == json->child ? json->child->prev : last);
            last = item;
        }
        assert_true(json->child == NULL || json->child->prev == last);
        cJSON_Delete(json);
        cJSON_Delete(theirs);
    }
}

static void escapes_are_undone(void **state) {
    static const struct json_limits any = {JSON_MAX_DEPTH, 100, .takes_any_escape = true};
    static const struct sample cases[] = {
        SAMPLE("a\\u00e9\\n\\\\b\\/\\\"", "a\xC3\xA9\n\\b/\""),
        SAMPLE("\\uD83D\\uDE00\\udbff\\udfff", "\xF0\x9F\x98\x80\xF4\x8F\xBF\xBF"),
        SAMPLE("\\u0000\\ud800\\udc00\\udc00\\ud800",
               "\xEF\xBF\xBD\xF0\x90\x80\x80\xEF\xBF\xBD\xEF\xBF\xBD"),
        SAMPLE("\\ud800\\ud83d\\ude00\\ud800\\n", "\xEF\xBF\xBD\xF0\x9F\x98\x80\xEF\xBF\xBD\n"),
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[256];
        struct error err;
        int length = snprintf(text, sizeof(text), "{\"%s\":\"%s\"}", cases[i].text, cases[i].text);
        cJSON *json = json_read(text, (size_t)length, &any, &err);
        assert_non_null(json);
        assert_string_equal(json->child->string, cases[i].message);
        assert_string_equal(json->child->valuestring, cases[i].message);
        cJSON_Delete(json);
    }
}

static void bad_texts_are_refused_with_the_place(void **state) {
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct error err = {0};
        if (scan(bad[i].text, bad[i].length, &err) == 0)
            fail_msg("accepted %s", bad[i].text);
        assert_int_equal(err.code, ERROR_SYNTAX);
        if (strstr(err.message, bad[i].message) == NULL)
            fail_msg("%s: \"%s\" lacks \"%s\"", bad[i].text, err.message, bad[i].message);
    }
}

/* No prefix of a document is a document. */
static void every_prefix_is_refused(void **state) {
    const char *text = good[5].text;
    for (size_t length = 0; length < good[5].length; length++) {
        struct error err;
        assert_int_equal(scan(text, length, &err), -1);
    }
}

static char *repeated(const char *head, const char *unit, size_t count, const char *tail,
                      size_t *out_length) {
    size_t unit_bytes = strlen(unit);
    *out_length = strlen(head) + unit_bytes * count + strlen(tail);
    char *text = malloc(*out_length + 1), *at = text;
    assert_non_null(text);
    at = stpcpy(at, head);
    for (size_t i = 0; i < count; i++)
        at = stpcpy(at, unit);
    stpcpy(at, tail);
    return text;
}

static void depth_is_bounded(void **state) {
    const struct {
        int depth;
        int expected;
    } cases[] = {{63, 0}, {64, -1}, {1000, -1}, {100000, -1}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        size_t length, tail_length;
        char *tail = repeated("", "]", (size_t)cases[i].depth, "}", &tail_length);
        char *text = repeated("{\"a\":", "[", (size_t)cases[i].depth, tail, &length);
        struct error err = {0};
        assert_int_equal(read_with(text, length, &limits, &err), cases[i].expected);
        if (cases[i].expected != 0)
            assert_non_null(strstr(err.message, "64 levels"));
        free(text);
        free(tail);
    }
}

static void nodes_are_bounded(void **state) {
    static const struct json_limits few = {JSON_MAX_DEPTH, 10};
    size_t length;
    struct error err;
    char *fits = repeated("{\"a\":[", "1,", 7, "1]}", &length); /* 8 numbers, array, object */
    assert_int_equal(read_with(fits, length, &few, &err), 0);
    free(fits);
    char *over = repeated("{\"a\":[", "1,", 8, "1]}", &length);
    assert_int_equal(read_with(over, length, &few, &err), -1);
    assert_non_null(strstr(err.message, "10 are allowed"));
    free(over);
}

/* 200,000 keys with a common prefix: a quadratic comparison would take minutes. */
static void many_keys_are_compared_fast(void **state) {
    enum { NUM_KEYS = 200000, KEY_CHARS = 32 };
    char *text = malloc((size_t)NUM_KEYS * KEY_CHARS + 64), *at = stpcpy(text, "{");
    for (int i = 0; i < NUM_KEYS; i++)
        at += sprintf(at, "\"common_prefix_%06d\":1,", i);
    struct error err;
    char *end = stpcpy(at, "\"last\":1}");
    assert_int_equal(read_with(text, (size_t)(end - text), &limits, &err), 0);
    end = stpcpy(at, "\"common_prefix_\\u0030\\u00300007\":1}");
    assert_int_equal(read_with(text, (size_t)(end - text), &limits, &err), -1);
    assert_non_null(strstr(err.message, "already has"));
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_texts_pass),
        cmocka_unit_test(a_tree_is_as_cjson_has_it),
        cmocka_unit_test(escapes_are_undone),
        cmocka_unit_test(limits_let_more_pass),
        cmocka_unit_test(bad_texts_are_refused_with_the_place),
        cmocka_unit_test(every_prefix_is_refused),
        cmocka_unit_test(depth_is_bounded),
        cmocka_unit_test(nodes_are_bounded),
        cmocka_unit_test(many_keys_are_compared_fast),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
