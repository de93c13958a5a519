/* Schemas and the texts they admit: each text is fed to the grammar byte by byte. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "engine/grammar/read/json_schema.h"
#include "config/json/json_read.h"
#include "tests/unit/engine/grammar/machine/grammar_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct tokenizer tokenizer;
static struct grammar_vocabulary *vocabulary;

static int set_up(void **state) {
    struct error err;
    fixture_init_bytes(&tokenizer);
    return grammar_vocabulary_create(&tokenizer, &vocabulary, &err);
}

static int tear_down(void **state) {
    grammar_vocabulary_destroy(vocabulary);
    return 0;
}

static int build(const char *text, bool strict, struct grammar **out, struct api_error *err) {
    static const struct json_limits limits = {JSON_MAX_DEPTH, 1 << 20};
    struct byte_buffer object = {0};
    struct error why;
    byte_buffer_printf(&object, "{\"schema\":%s}", text);
    cJSON *json = json_read(object.data, object.length, &limits, &why);
    if (json == NULL)
        json = cJSON_ParseWithLength(object.data,
                                     object.length); /* nested deeper than a body may be */
    if (json == NULL)
        fail_msg("the test's schema is not JSON: %s: %s", text, why.message);
    cJSON *schema = cJSON_DetachItemViaPointer(json, json->child);
    cJSON_Delete(json);
    byte_buffer_finish(&object);
    struct grammar_builder *builder = grammar_builder_create();
    grammar_node node;
    int result = json_schema_node(builder, schema, "schema", strict, NULL, &node, err);
    cJSON_Delete(schema);
    if (result == 0)
        result = json_schema_build(builder, node, "schema", out, err);
    grammar_builder_destroy(builder);
    return result;
}

static bool matches(struct grammar *grammar, const char *text) {
    struct grammar_state *state = grammar_state_create(grammar, vocabulary);
    const char *at = text;
    while (*at != '\0' && grammar_state_accept(state, (uint8_t)*at) == 0)
        at++;
    bool whole = *at == '\0' && grammar_state_accept(state, tokenizer.end) == 0;
    grammar_state_destroy(state);
    return whole;
}

#define LABEL_61 "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghi"
#define LABEL_63 LABEL_61 "jk"

struct schema_case {
    const char *schema;
    const char *matched[8], *refused[12];
};

static const struct schema_case cases[] = {
    {"{\"type\":\"null\"}", {"null"}, {"", "nul", "nulls", "0"}},
    {"{\"type\":\"boolean\"}", {"true", "false"}, {"True", "1", "null"}},
    {"{\"type\":\"integer\"}",
     {"0", "-1", "12", "1795826518123456789", "-9223372036854775808", "18446744073709551615",
      "907"},
     {"-0", "01", "1.0", "1e3", "100000000000000000000", "+1", "", "-"}},
    {"{\"type\":\"number\"}",
     {"0", "-0.5", "12.25", "1e9", "2.2250738585072014E-308", "0.0001234567890123456789",
      "1.7976931348623157e307", "18446744073709551615"},
     {"01", "1.", ".5", "1e999", "1e308", "99e299", "0.12345678901234567890123", "NaN", "1e"}},
    {"{\"enum\":[1795826518123456789,9007199254740991,1e15,1000000000000000,0.30000000000000004]}",
     {"1795826518123456789", "9007199254740991", "1000000000000000", "0.30000000000000004"},
     {"1795826518123456800", "9.00719925474099e+15", "1e+15", "0.3"}},
    {"{\"const\":0.12345678901234567890}",
     {"0.12345678901234567890"},
     {"0.12345678901234568", "0.123456789012346"}},
    {"{\"type\":\"integer\",\"minimum\":1795826518123456788,\"maximum\":18446744073709551615}",
     {"1795826518123456788", "1795826518123456789", "18446744073709551615"},
     {"1795826518123456787", "18446744073709551616", "0"}},
    {"{\"type\":\"number\",\"exclusiveMinimum\":0,\"exclusiveMaximum\":1}",
     {"0.12345678901234567", "0.00012345678901234567", "0.99999999999", "0.5",
      "0.10000000000000001"},
     {"0", "1", "0.0", "0.99999999999999999", "0.0000000000000000000000", "1.0"}},
    {"{\"type\":\"string\"}",
     {"\"\"", "\"a b\"", "\"\\n\\\"\\\\\\/\"", "\"\\u00e9\"", "\"\xc3\xa9\xf0\x9f\x98\x80\"",
      "\"\\ud83d\\uDE00\""},
     {"\"", "\"a\nb\"", "\"\\x\"", "\"\\u12\"", "\"\\ud83d\"", "\"\\ude00\"", "\"\xc3\"", "\"a\" ",
      "'a'", "\"\xff\""}},
    {"{\"type\":[\"string\",\"null\"]}", {"\"a\"", "null"}, {"1"}},
    {"{\"enum\":[\"a\",\"ab\",1,null,{\"x\":[1,2]},\"\\n\"]}",
     {"\"a\"", "\"ab\"", "1", "null", "{\"x\":[1,2]}", "{\"x\": [1, 2]}", "\"\\n\""},
     {"\"b\"", "2", "\"abc\"", "{\"x\":[1]}"}},
    {"{\"type\":\"string\",\"enum\":[\"a\",1]}", {"\"a\""}, {"1"}},
    {"{\"type\":\"string\",\"format\":\"time\"}",
     {"\"23:59:60Z\"", "\"23:59:60.5+00:00\"", "\"01:29:60+01:30\"", "\"23:29:60+23:30\"",
      "\"15:59:60-08:00\"", "\"00:29:60-23:30\"", "\"08:59:60+09:00\""},
     {"\"22:59:60Z\"", "\"23:58:60Z\"", "\"23:59:61Z\"", "\"23:59:60+01:00\"", "\"23:59:60-01:00\"",
      "\"23:59:60+00:30\""}},
    {"{\"type\":\"string\",\"format\":\"date-time\"}",
     {"\"1998-12-31T23:59:60Z\"", "\"1998-12-31T15:59:60.1-08:00\"",
      "\"2015-07-01T08:59:60+09:00\""},
     {"\"1998-12-31T22:59:60Z\"", "\"1998-12-30T23:59:60Z\"", "\"2015-06-30T08:59:60+09:00\""}},
    {"{\"type\":\"string\",\"format\":\"email\"}",
     {"\"a.b@c.de\"", "\"\\\"a..b@c d\\\"@e.de\"", "\"a@[127.0.0.1]\"", "\"a@[IPv6:::1]\"",
      "\"1234567890123456789012345678901234567890123456789012345678901234@e.de\""},
     {"\".a@b.de\"", "\"a.@b.de\"", "\"a..b@c.de\"", "\"a@[127.0.0.300]\"", "\"a b@c.de\"",
      "\"a@\"", "\"12345678901234567890123456789012345678901234567890123456789012345@e.de\""}},
    {"{\"type\":\"string\",\"format\":\"hostname\"}",
     {"\"a.bc.de\"", "\"" LABEL_63 "." LABEL_63 "." LABEL_63 "." LABEL_61 "\"",
      "\"1234567890abcdef1234567890abcdef.s3.dualstack.eu-central-1.amazonaws.com\""},
     {"\"" LABEL_63 "." LABEL_63 "." LABEL_63 "." LABEL_61 "b\"",
      "\"" LABEL_63 "." LABEL_63 "." LABEL_61 "." LABEL_61 ".bcde\"", "\"-a\"", "\"a-\"",
      "\"a..b\"", "\"" LABEL_63 "b\""}},
    {"{\"const\":-1.5}", {"-1.5"}, {"1.5", "-1.50"}},
    {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}",
     {"\"ab\"", "\"\xc3\xa9\xc3\xa9\xc3\xa9\"", "\"\\n\\u0041b\""},
     {"\"\"", "\"a\"", "\"abcd\""}},
    {"{\"type\":\"string\",\"pattern\":\"^[a-c]{2,3}\\\\d+$\"}",
     {"\"ab1\"", "\"abc123\""},
     {"\"a1\"", "\"ab\"", "\"abcd1\"", "\"xab1\""}},
    {"{\"type\":\"string\",\"pattern\":\"b\"}",
     {"\"b\"", "\"abc\"", "\"\\nbb\""},
     {"\"\"", "\"a\""}},
    {"{\"type\":\"string\",\"pattern\":\"^(?:a|\\\"b)$\"}",
     {"\"a\"", "\"\\\"b\""},
     {"\"b\"", "\"\"b\""}},
    {"{\"type\":\"string\",\"format\":\"date-time\"}",
     {"\"2024-02-28T23:59:59Z\"", "\"1999-12-31T00:00:00.5+02:00\""},
     {"\"2024-02-30T00:00:00Z\"", "\"2024-01-01\"", "\"2024-13-01T00:00:00Z\"",
      "\"2024-01-01T24:00:00Z\"", "\"2024-01-01T00:00:00\""}},
    {"{\"type\":\"string\",\"format\":\"date\"}",
     {"\"2024-01-31\"", "\"2024-04-30\""},
     {"\"2024-04-31\"", "\"2024-00-10\"", "\"24-01-01\""}},
    {"{\"type\":\"string\",\"format\":\"time\"}", {"\"10:20:30Z\""}, {"\"25:00:00Z\""}},
    {"{\"type\":\"string\",\"format\":\"uuid\"}",
     {"\"123e4567-e89b-42d3-a456-426614174000\""},
     {"\"123e4567\"", "\"\""}},
    {"{\"type\":\"string\",\"format\":\"email\"}",
     {"\"a.b@example.com\"", "\"x@a.io\""},
     {"\"a\"", "\"a@b\"", "\"@b.com\"", "\"a..b@c.de\""}},
    {"{\"type\":\"string\",\"format\":\"ipv4\"}",
     {"\"127.0.0.1\"", "\"255.255.255.255\""},
     {"\"256.0.0.1\"", "\"1.2.3\""}},
    {"{\"type\":\"string\",\"format\":\"hostname\"}", {"\"anything\""}, {"1"}},
    {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"}}",
     {"[]", "[1]", "[1, 2,3]"},
     {"[", "[1,]", "[,1]", "[1 ,2]", "[1,  2]", "[\"a\"]", "[ 1]"}},
    {"{\"type\":\"array\",\"items\":{\"type\":\"boolean\"},\"minItems\":2,\"maxItems\":3}",
     {"[true,false]", "[true,true,true]"},
     {"[]", "[true]", "[true,true,true,true]"}},
    {"{\"type\":\"array\",\"maxItems\":0}", {"[]"}, {"[1]"}},
    {"{\"type\":\"array\",\"maxItems\":1,\"items\":{\"const\":1}}", {"[]", "[1]"}, {"[1,1]"}},
    {"{\"type\":\"array\",\"prefixItems\":[{\"const\":1},{\"const\":2}],\"items\":false,"
     "\"minItems\":1}",
     {"[1]", "[1,2]"},
     {"[]", "[2]", "[1,2,3]"}},
    {"{\"type\":\"array\",\"prefixItems\":[{\"const\":1},{\"const\":2}],\"items\":{\"const\":3}}",
     {"[]", "[1]", "[1,2]", "[1,2,3,3]"},
     {"[1,3]", "[1,2,2]"}},
    {"{\"type\":\"array\",\"items\":[{\"const\":1}],\"minItems\":1,\"maxItems\":1}",
     {"[1]"},
     {"[]", "[1,1]"}},
    {"{\"type\":\"array\",\"prefixItems\":[{\"const\":1},{\"const\":2}],\"items\":{\"const\":3},"
     "\"minItems\":3,\"maxItems\":4}",
     {"[1,2,3]", "[1,2,3,3]"},
     {"[1,2]", "[1,2,3,3,3]"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"const\":1},\"b\":{\"const\":2},\"c\":{"
     "\"const\":3}},"
     "\"required\":[\"b\"]}",
     {"{\"b\":2}", "{\"a\": 1, \"b\": 2}", "{\"a\":1,\"b\":2,\"c\":3}", "{\"b\":2,\"c\":3}"},
     {"{}", "{\"a\":1}", "{\"b\":2,\"a\":1}", "{\"b\":2,}", "{\"b\":2,\"d\":1}", "{,\"b\":2}",
      "{\"a\":1\"b\":2}", "{\"b\":2,\"b\":2}", "{\"c\":3}"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"const\":1},\"b\":{\"const\":2}}}",
     {"{}", "{\"a\":1}", "{\"b\":2}", "{\"a\":1,\"b\":2}"},
     {"{\"b\":2,\"a\":1}", "{\"x\":1}"}},
    {"{\"type\":\"object\",\"properties\":{}}", {"{}"}, {"{\"a\":1}"}},
    {"{\"type\":\"object\"}",
     {"{}", "{\"a\":{\"b\":[1,\"x\",null]}, \"c\":2}"},
     {"[]", "{a:1}", "{\"a\"}"}},
    {"{\"type\":\"object\",\"additionalProperties\":{\"type\":\"integer\"}}",
     {"{}", "{\"x\":1,\"y\":2}"},
     {"{\"x\":\"1\"}"}},
    {"{\"type\":\"object\",\"properties\":{\"ab\":{\"const\":1},\"a\":{\"const\":2}},\"required\":["
     "\"ab\"],"
     "\"additionalProperties\":true}",
     {"{\"ab\":1}", "{\"ab\":1,\"a\":2}", "{\"ab\":1,\"x\":[]}", "{\"ab\":1,\"abc\":0,\"b\":0}",
      "{\"ab\":1,\"\":0}"},
     {"{\"x\":1}", "{\"ab\":1,\"ab\":2}", "{\"ab\":1,\"x\":0,\"a\":2}", "{\"ab\":1,\"a\":3}"}},
    {"{\"type\":\"object\",\"required\":[\"k\"],\"additionalProperties\":{\"type\":\"boolean\"}}",
     {"{\"k\":true}", "{\"k\":true,\"z\":false}"},
     {"{}", "{\"z\":true}"}},
    {"{\"properties\":{\"quo\\\"te\":{\"type\":\"null\"}},\"required\":[\"quo\\\"te\"]}",
     {"{\"quo\\\"te\":null}"},
     {"{\"quo\"te\":null}"}},
    {"{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"null\"}]}", {"1", "null"}, {"\"\""}},
    {"{\"oneOf\":[{\"const\":1},{\"const\":2}]}", {"1", "2"}, {"3"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"const\":1},\"b\":{\"const\":2}},"
     "\"anyOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"]}]}",
     {"{\"a\":1}", "{\"b\":2}", "{\"a\":1,\"b\":2}"},
     {"{}"}},
    {"{\"allOf\":[{\"$ref\":\"#/$defs/"
     "x\"},{\"properties\":{\"b\":{\"const\":2}},\"required\":[\"b\"]}],"
     "\"$defs\":{\"x\":{\"type\":\"object\",\"properties\":{\"a\":{\"const\":1}},\"required\":["
     "\"a\"]}}}",
     {"{\"a\":1,\"b\":2}"},
     {"{\"a\":1}", "{\"b\":2}"}},
    {"{\"allOf\":[{\"type\":\"integer\"},{\"minimum\":3}]}", {"3"}, {"2"}},
    {"{\"type\":\"object\",\"properties\":{\"next\":{\"anyOf\":[{\"$ref\":\"#\"},{\"type\":"
     "\"null\"}]}},"
     "\"required\":[\"next\"]}",
     {"{\"next\":null}", "{\"next\":{\"next\":null}}"},
     {"{}", "{\"next\":{}}"}},
    {"{\"$ref\":\"#/definitions/a~1b/0\",\"definitions\":{\"a/b\":[{\"const\":7}]}}", {"7"}, {"8"}},
    {"{}", {"1", "\"a\"", "[]", "{\"a\":[{}]}", "null"}, {"", "x"}},
    {"{\"title\":\"t\",\"description\":\"d\",\"default\":1,\"examples\":[1],\"type\":\"integer\"}",
     {"4"},
     {"\"\""}},
    {"{\"type\":\"string\",\"nonsense\":1}", {"\"a\""}, {"1"}},
    {"{\"type\":\"number\",\"minimum\":0,\"maximum\":1}",
     {"0", "1", "0.0", "0.999", "0.5"},
     {"-0.1", "1.1", "1.0001", "2", "-1", "10"}},
    {"{\"type\":\"number\",\"exclusiveMinimum\":0}",
     {"0.5", "0.001", "1", "17.25"},
     {"0", "0.0", "-1", "-0.5"}},
    {"{\"type\":\"number\",\"exclusiveMaximum\":0}", {"-0.5", "-1", "-17.25"}, {"0", "-0.0", "1"}},
    {"{\"type\":\"integer\",\"minimum\":3,\"exclusiveMinimum\":true,\"maximum\":5,"
     "\"exclusiveMaximum\":false}",
     {"4", "5"},
     {"3", "6"}},
    {"{\"type\":\"integer\",\"minimum\":9007199254740993,\"maximum\":9007199254740995}",
     {"9007199254740993", "9007199254740995"},
     {"9007199254740992", "9007199254740996"}},
    {"{\"type\":\"integer\",\"exclusiveMinimum\":9007199254740993}",
     {"9007199254740994"},
     {"9007199254740993", "9007199254740992"}},
    {"{\"enum\":[9007199254740993,9223372036854775807]}",
     {"9007199254740993", "9223372036854775807"},
     {"9007199254740992", "9223372036854775808", "9.2233720368547758e+18"}},
    {"{\"type\":\"number\",\"exclusiveMinimum\":true}", {"-1", "0.5"}, {"true"}},
    {"{\"type\":\"number\",\"minimum\":-1.5,\"maximum\":2.25}",
     {"0.00", "2.25", "-1.50", "-1.499", "2.249", "-0.01"},
     {"2.26", "-1.51", "2.251", "-1.501", "3.00"}},
    {"{\"type\":\"number\",\"minimum\":10,\"exclusiveMaximum\":100}",
     {"10", "99", "99.99", "10.5"},
     {"9", "9.99", "100", "100.0"}},
};

static void test_cases(void **unused) {
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct grammar *grammar;
        struct api_error err;
        if (build(cases[i].schema, false, &grammar, &err) != 0)
            fail_msg("%s: %s", cases[i].schema, err.message);
        for (int k = 0; k < 8 && cases[i].matched[k] != NULL; k++)
            if (!matches(grammar, cases[i].matched[k]))
                fail_msg("%s must match %s", cases[i].schema, cases[i].matched[k]);
        for (int k = 0; k < 12 && cases[i].refused[k] != NULL; k++)
            if (matches(grammar, cases[i].refused[k]))
                fail_msg("%s must not match %s", cases[i].schema, cases[i].refused[k]);
        grammar_unref(grammar);
    }
}

/* Every whole number around the bounds, for many pairs of bounds. */
static void test_integer_ranges(void **unused) {
    static const int bounds[] = {-1000, -123, -100, -99, -10, -7,  -1,  0,   1,
                                 5,     9,    10,   42,  99,  100, 305, 999, 1000};
    enum { NUM = sizeof(bounds) / sizeof(bounds[0]) };
    for (int i = 0; i < NUM * NUM; i++) {
        int low = bounds[i / NUM], high = bounds[i % NUM];
        char schema[96], text[16];
        struct grammar *grammar;
        struct api_error err;
        snprintf(schema, sizeof(schema), "{\"type\":\"integer\",\"minimum\":%d,\"maximum\":%d}",
                 low, high);
        int result = build(schema, true, &grammar, &err);
        assert_int_equal(result, low <= high ? 0 : -1);
        if (result != 0)
            continue;
        for (int value = -1101; value <= 1101;
             value += 1 + (value > -990 && value < 990 && value % 7 != 0 && i % 5 != 0)) {
            snprintf(text, sizeof(text), "%d", value);
            if (matches(grammar, text) != (value >= low && value <= high))
                fail_msg("%s: %s", schema, text);
        }
        grammar_unref(grammar);
    }
}

/* Reals with up to four digits behind the point, against their value. */
static void test_real_ranges(void **unused) {
    static const struct {
        const char *schema;
        double low, high;
        bool low_excluded, high_excluded;
        int decimals;
    } ranges[] = {
        {"{\"type\":\"number\",\"minimum\":0.5,\"maximum\":12}", 0.5, 12, false, false, 1},
        {"{\"type\":\"number\",\"exclusiveMinimum\":-3,\"exclusiveMaximum\":3}", -3, 3, true, true,
         0},
        {"{\"type\":\"number\",\"minimum\":-20,\"exclusiveMaximum\":-3}", -20, -3, false, true, 0},
        {"{\"type\":\"number\",\"exclusiveMinimum\":0.25,\"maximum\":0.75}", 0.25, 0.75, true,
         false, 2},
    };
    for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
        struct grammar *grammar;
        struct api_error err;
        assert_int_equal(build(ranges[i].schema, true, &grammar, &err), 0);
        for (int scaled = -250000; scaled <= 250000; scaled += scaled % 10 == 0 ? 1 : 3) {
            double value = scaled / 10000.0;
            char text[32];
            snprintf(text, sizeof(text), "%.4f", value);
            bool inside = ranges[i].low_excluded ? value > ranges[i].low : value >= ranges[i].low;
            inside &= ranges[i].high_excluded ? value < ranges[i].high : value <= ranges[i].high;
            bool expected = inside;
            /* The bound itself is written with its own digits only. */
            bool at_bound = value == ranges[i].low || value == ranges[i].high || value == 0;
            if (!at_bound && matches(grammar, text) != expected)
                fail_msg("%s: %s", ranges[i].schema, text);
            if (at_bound && matches(grammar, text) && !inside)
                fail_msg("%s: %s", ranges[i].schema, text);
        }
        grammar_unref(grammar);
    }
}

static void test_refused(void **unused) {
    static const struct {
        const char *schema, *message;
    } wrong[] = {
        {"{\"type\":\"int\"}", "type must be"},
        {"{\"type\":[]}", "type must be"},
        {"{\"type\":[\"string\",3]}", "type must be"},
        {"{\"type\":null}", "type must be"},
        {"{\"pattern\":\"(\"}", "pattern"},
        {"{\"type\":\"string\",\"pattern\":\"(?=a)\"}", "not supported"},
        {"{\"type\":\"string\",\"pattern\":\"*a\"}", "nothing to repeat"},
        {"{\"type\":\"string\",\"pattern\":\"a{2,1}\"}", "maximum"},
        {"{\"type\":\"string\",\"pattern\":\"[z-a]\"}", "range"},
        {"{\"type\":\"string\",\"pattern\":\"a\\\\\"}", "backslash"},
        {"{\"type\":\"string\",\"pattern\":3}", "string"},
        {"{\"$ref\":\"#\"}", "refers to itself"},
        {"{\"$ref\":\"#/$defs/a\",\"$defs\":{\"a\":{\"$ref\":\"#/$defs/b\"},\"b\":{\"$ref\":\"#/"
         "$defs/a\"}}}",
         "refers to itself"},
        {"{\"anyOf\":[{\"$ref\":\"#\"},{\"type\":\"null\"}]}", "refers to itself"},
        {"{\"$ref\":\"http://example.com/x\"}", "$ref"},
        {"{\"$ref\":\"#/$defs/none\"}", "$ref"},
        {"{\"$ref\":\"#/$defs/a\"}", "$ref"},
        {"{\"$ref\":3}", "$ref"},
        {"{\"allOf\":[{\"$ref\":\"#\"}]}", "deeper than 64"},
        {"{\"properties\":{\"a\":{\"$ref\":\"#\"}},\"required\":[\"a\"]}", "no text"},
        {"{\"properties\":3}", "properties"},
        {"{\"properties\":{\"a\":1},\"type\":\"object\"}", "schema.properties.a"},
        {"{\"properties\":{\"a\":false},\"required\":[\"a\"]}", "required"},
        {"{\"required\":\"a\"}", "required"},
        {"{\"enum\":[]}", "enum"},
        {"{\"enum\":3}", "enum"},
        {"{\"type\":\"string\",\"enum\":[1]}", "enum"},
        {"{\"anyOf\":[]}", "anyOf"},
        {"{\"anyOf\":{}}", "anyOf"},
        {"{\"type\":\"string\",\"minLength\":-1}", "minLength"},
        {"{\"type\":\"string\",\"minLength\":1.5}", "minLength"},
        {"{\"type\":\"string\",\"maxLength\":1e9}", "maxLength"},
        {"{\"type\":\"string\",\"minLength\":3,\"maxLength\":2}", "maxLength"},
        {"{\"type\":\"array\",\"minItems\":3,\"maxItems\":2}", "items"},
        {"{\"type\":\"array\",\"items\":false,\"minItems\":1}", "items"},
        {"{\"type\":\"integer\",\"minimum\":\"3\"}", "minimum"},
        {"{\"type\":\"integer\",\"minimum\":3.5,\"maximum\":3.9}", "minimum"},
        {"{\"type\":\"integer\",\"minimum\":1e300}", "minimum"},
        {"{\"type\":\"number\",\"minimum\":3,\"maximum\":2}", "minimum"},
        {"{\"type\":\"number\",\"exclusiveMinimum\":3,\"maximum\":3}", "minimum"},
        {"[]", "schema"},
        {"3", "schema"},
        {"false", "nothing matches"},
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct grammar *grammar;
        struct api_error err = {0};
        if (build(wrong[i].schema, false, &grammar, &err) == 0)
            fail_msg("%s must be refused", wrong[i].schema);
        if (err.status != 400 || strstr(err.message, wrong[i].message) == NULL)
            fail_msg("%s: %d %s", wrong[i].schema, err.status, err.message);
    }
}

/* An invalid JSON schema is distinguished from a valid one that is not supported. */
static void test_invalid_and_unsupported(void **unused) {
    static const struct {
        const char *schema;
        bool is_unsupported;
    } schemas[] = {
        {"{\"type\":\"strng\"}", false},
        {"{\"properties\":{\"a\":1}}", false},
        {"{\"required\":true}", false},
        {"{\"enum\":{}}", false},
        {"{\"anyOf\":[]}", false},
        {"{\"type\":\"string\",\"minLength\":-1}", false},
        {"{\"type\":\"string\",\"pattern\":3}", false},
        {"{\"$ref\":\"#/$defs/none\"}", false},
        {"{\"type\":\"string\",\"maxLength\":1e9}", true},
        {"{\"type\":\"string\",\"pattern\":\"(?=a)b\"}", true},
        {"{\"$ref\":\"http://example.com/x\"}", true},
        {"{\"properties\":{\"a\":false},\"required\":[\"a\"]}", true},
        {"{\"not\":{\"propertyNames\":{\"maxLength\":3}}}", true},
        {"{\"allOf\":[{\"$ref\":\"#\"}]}", true},
    };
    for (size_t i = 0; i < sizeof(schemas) / sizeof(schemas[0]); i++) {
        struct grammar *grammar;
        struct api_error err = {0};
        assert_int_equal(build(schemas[i].schema, false, &grammar, &err), -1);
        assert_int_equal(err.status, 400);
        if (json_schema_is_unsupported(&err) != schemas[i].is_unsupported)
            fail_msg("%s: %s", schemas[i].schema, err.code);
    }
}

/* Words that are no keywords, and formats that are no one's, are refused where it is strict. */
static void test_strict(void **unused) {
    static const char *const schemas[] = {
        "{\"type\":\"string\",\"format\":\"colour\"}",
        "{\"type\":\"string\",\"nonsense\":1}",
        "{\"properties\":{\"a\":{\"x-order\":1}}}",
    };
    for (size_t i = 0; i < sizeof(schemas) / sizeof(schemas[0]); i++) {
        struct grammar *grammar;
        struct api_error err = {0};
        assert_int_equal(build(schemas[i], false, &grammar, &err), 0);
        grammar_unref(grammar);
        assert_int_equal(build(schemas[i], true, &grammar, &err), -1);
        assert_int_equal(err.status, 400);
        assert_non_null(strstr(err.message, "not supported"));
    }
}

/* What cannot be kept exactly is refused, strict or not, by keyword and place. */
static void test_declined(void **unused) {
    static const struct {
        const char *schema, *place, *keyword;
    } schemas[] = {
        {"{\"properties\":{\"a\":{\"type\":\"array\",\"uniqueItems\":true}}}",
         "schema.properties.a", "uniqueItems"},
        {"{\"type\":\"array\",\"items\":{\"type\":\"number\",\"minimum\":0.12345678}}",
         "schema.items", "minimum"},
        {"{\"type\":\"string\",\"format\":\"iri\"}", "schema", "format"},
        {"{\"type\":\"string\",\"pattern\":\"^(?=a)\"}", "schema", "pattern"},
        {"{\"type\":\"string\",\"pattern\":\"a\\\\b\"}", "schema", "pattern"},
        {"{\"type\":\"integer\",\"multipleOf\":999983}", "schema", "multipleOf"},
        {"{\"oneOf\":[{\"type\":\"object\"},{\"patternProperties\":{\"a\":{\"type\":\"null\"}}}]}",
         "schema.oneOf[1]", "patternProperties"},
        {"{\"properties\":{\"a\":{}},\"anyOf\":[{\"properties\":{\"b\":{}}}],"
         "\"unevaluatedProperties\":false}",
         "schema", "unevaluatedProperties"},
    };
    for (size_t i = 0; i < sizeof(schemas) / sizeof(schemas[0]); i++) {
        struct grammar *grammar;
        struct api_error err = {0};
        char place[64];
        snprintf(place, sizeof(place), "%s:", schemas[i].place);
        if (build(schemas[i].schema, i % 2 == 0, &grammar, &err) == 0)
            fail_msg("%s must be refused", schemas[i].schema);
        assert_int_equal(err.status, 400);
        assert_true(json_schema_is_unsupported(&err));
        if (strncmp(err.message, place, strlen(place)) != 0 ||
            strstr(err.message, schemas[i].keyword) == NULL)
            fail_msg("%s: %s", schemas[i].schema, err.message);
    }
}

/* Writes `count` times a text, with its number for %d, between two others. */
static char *repeated(const char *begin, const char *format, int count, const char *end) {
    size_t capacity = strlen(begin) + strlen(end) + (size_t)count * (strlen(format) + 12) + 1;
    char *text = malloc(capacity);
    size_t length = (size_t)snprintf(text, capacity, "%s", begin);
    for (int i = 0; i < count; i++) {
        length += (size_t)snprintf(text + length, capacity - length, i > 0 ? "," : "");
        length += (size_t)snprintf(text + length, capacity - length, format, i);
    }
    snprintf(text + length, capacity - length, "%s", end);
    return text;
}

static void refuse_large(char *schema, const char *message) {
    struct grammar *grammar;
    struct api_error err = {0};
    assert_int_equal(build(schema, false, &grammar, &err), -1);
    assert_int_equal(err.status, 400);
    if (strstr(err.message, message) == NULL)
        fail_msg("%s", err.message);
    free(schema);
}

static void test_bounds(void **unused) {
    refuse_large(
        repeated("{\"oneOf\":[", "{\"type\":\"object\",\"properties\":{\"p%d\":{}}}", 10000, "]}"),
        "256");
    refuse_large(repeated("{\"enum\":[", "\"%d\"", 6000, "]}"), "5000");
    refuse_large(repeated("{\"properties\":{", "\"p%d\":{}", 6000, "}}"), "5000");
    char deep[65 * 10 + 80] = "";
    for (int i = 0; i < 65; i++)
        strcat(deep, "{\"items\":");
    strcat(deep, "{}");
    for (int i = 0; i < 65; i++)
        strcat(deep, "}");
    struct grammar *grammar;
    struct api_error err = {0};
    assert_int_equal(build(deep, false, &grammar, &err), -1);
    assert_string_equal(err.code, "schema_too_deep");
    /* What is merged doubles at every step. */
    refuse_large(
        strdup("{\"$ref\":\"#/$defs/a\",\"$defs\":{\"a\":{\"properties\":{\"x\":{\"allOf\":["
               "{\"$ref\":\"#/$defs/a\"},{\"$ref\":\"#/$defs/a\"}]}},\"required\":[\"x\"]}}}"),
        "");
}

/* What would take a worker minutes. */
static void test_work(void **unused) {
    char *refs = repeated("},\"properties\":{", "\"p%d\":{\"$ref\":\"#/$defs/d29999\"}", 100, "}}");
    char *a_thousand = repeated("", "a", 1000, "|"); /* "a,a,a..." */
    char *pattern = repeated("{\"type\":\"string\",\"pattern\":\"", a_thousand, 100, ")\"}");
    refuse_large(repeated("{\"$defs\":{", "\"d%d\":{}", 30000, refs), "more work");
    refuse_large(repeated("{\"required\":[", "\"p%d\"", 4000, "]}"), "more work");
    refuse_large(repeated("{\"properties\":{\"x\":{}},\"allOf\":[{\"properties\":{", "\"k%d\":{}",
                          4000, "}}]}"),
                 "more work");
    refuse_large(pattern, "too large"); /* and the ')' behind it is not come to */
    free(a_thousand);
    free(refs);
}

/* Large, but within the bounds. */
static void test_large(void **unused) {
    char *schema =
        repeated("{\"properties\":{", "\"p%d\":{\"type\":\"integer\",\"minimum\":0}", 400, "}}");
    struct grammar *grammar;
    struct api_error err;
    assert_int_equal(build(schema, true, &grammar, &err), 0);
    assert_true(matches(grammar, "{\"p3\":1,\"p7\":2,\"p399\":3}"));
    assert_false(matches(grammar, "{\"p7\":1,\"p3\":2}"));
    grammar_unref(grammar);
    free(schema);
    schema = repeated("{\"enum\":[", "\"value %d\"", 4000, "]}");
    assert_int_equal(build(schema, true, &grammar, &err), 0);
    assert_true(matches(grammar, "\"value 3999\""));
    assert_false(matches(grammar, "\"value 4000\""));
    grammar_unref(grammar);
    free(schema);
}

static void test_any_object(void **unused) {
    struct grammar_builder *builder = grammar_builder_create();
    struct grammar *grammar;
    struct api_error err;
    assert_int_equal(
        json_schema_build(builder, json_schema_any_object(builder, NULL), "x", &grammar, &err), 0);
    grammar_builder_destroy(builder);
    assert_true(matches(grammar, "{}"));
    assert_true(matches(grammar, "{\"a\": [1, {\"b\": null}], \"c\": \"\\u0041\"}"));
    assert_false(matches(grammar, "[]"));
    char deep[400] = "";
    for (int i = 0; i < 60; i++)
        strcat(deep, "{\"a\":");
    strcat(deep, "1");
    for (int i = 0; i < 60; i++)
        strcat(deep, "}");
    assert_true(matches(grammar, deep));
    grammar_unref(grammar);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_integer_ranges),
        cmocka_unit_test(test_real_ranges),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_invalid_and_unsupported),
        cmocka_unit_test(test_strict),
        cmocka_unit_test(test_declined),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_work),
        cmocka_unit_test(test_large),
        cmocka_unit_test(test_any_object),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
