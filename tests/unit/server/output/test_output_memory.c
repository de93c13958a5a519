/* The parser with the first, second, third ... allocation failing: it says so or gives what it
 * must. */
#include "server/output/output_parser.h"
#include "tests/unit/failing_allocations.h"
#include "tests/unit/server/output/output_cases.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* What is out, kinds left aside; the buffer is the test's own and never fails. */
struct outcome {
    char text[4096];
    size_t length;
};

static int run_case(const struct output_case *test, struct outcome *out) {
    struct output_parser *parser = output_parser_create(&test->config);
    struct output_part part;
    int status = parser == NULL ? -1 : 0;
    for (size_t i = 0; status == 0 && i <= strlen(test->text); i++) {
        bool is_end = test->text[i] == '\0';
        status = output_parser_push(parser, test->text + i, is_end ? 0 : 1,
                                    is_end ? OUTPUT_ENDS : OUTPUT_GOES_ON);
        while (status == 0 && output_parser_next(parser, &part)) {
            memcpy(out->text + out->length, part.text, part.length);
            out->length += part.length;
        }
    }
    output_parser_destroy(parser);
    return status;
}

static void try_case(const struct output_case *test) {
    struct outcome expected = {0};
    assert_int_equal(run_case(test, &expected), 0);
    for (long fail_at = 0;; fail_at++) {
        struct outcome out = {0};
        allocations_left = fail_at;
        int status = run_case(test, &out);
        bool has_failed = allocations_left == 0;
        allocations_left = -1;
        assert_memory_equal(out.text, expected.text, out.length);
        if (status == 0)
            assert_int_equal(out.length, expected.length);
        if (!has_failed)
            break;
    }
}

static void short_memory_is_reported(void **state) {
    for (int i = 0; i < num_output_cases; i++)
        try_case(&output_cases[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(short_memory_is_reported)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
