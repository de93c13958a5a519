#include "server/output/custom_input.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const struct {
    const char *arguments, *input;
} cases[] = {
    {"{\"input\": \"a b\"}", "a b"},
    {"{\"input\":\"\"}", ""},
    {" {\n  \"input\" : \"a\\n\\\"b\\\"\\\\\" }", "a\n\"b\"\\"},
    {"{\"input\": \"\\u00e9\\ud83d\\ude00\"}", "\xC3\xA9\xF0\x9F\x98\x80"},
    {"{\"input\": \"\\ud83d\"}", "\xEF\xBF\xBD"},
    {"{\"input\": \"a\", \"more\": \"b\"}", "a"},
    {"{\"input\": \"a\nb\"}", "a\nb"},
    {"{\"input\": \"cut", "cut"},
    {"{\"inp", ""},
    {"{}", ""},
    /* other arguments */
    {"{\"code\": \"x\"}", "{\"code\": \"x\"}"},
    {"{\"inputs\": \"x\"}", "{\"inputs\": \"x\"}"},
    {"{\"input\": {\"a\": 1}}", "{\"input\": {\"a\": 1}}"},
    {"{\"in put\": \"x\"}", "{\"in put\": \"x\"}"},
    {"{\"input\":                                  \"x\"}",
     "{\"input\":                                  \"x\"}"},
};

static void check(const char *arguments, const char *input, size_t step) {
    struct custom_input custom = {0};
    struct byte_buffer out = {0};
    size_t length = strlen(arguments);
    for (size_t i = 0; i < length; i += step)
        custom_input_push(&custom, arguments + i, i + step < length ? step : length - i, &out);
    assert_false(out.failed);
    if (out.length != strlen(input) || (out.length > 0 && memcmp(out.data, input, out.length) != 0))
        fail_msg("%s in steps of %zu: %.*s", arguments, step, (int)out.length, out.data);
    byte_buffer_finish(&out);
}

static void arguments_become_an_input_however_they_are_cut(void **state) {
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        for (size_t step = 1; step < 60; step++)
            check(cases[i].arguments, cases[i].input, step);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arguments_become_an_input_however_they_are_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
