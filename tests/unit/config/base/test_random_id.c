#include "config/base/random_id.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void an_id_is_its_prefix_and_hexadecimal_digits(void **state) {
    char id[8 + RANDOM_ID_MAX_DIGITS + 1];
    memset(id, 'x', sizeof(id));
    assert_int_equal(random_id("chatcmpl", RANDOM_ID_MAX_DIGITS, id, sizeof(id)), 0);
    assert_memory_equal(id, "chatcmpl", 8);
    assert_int_equal(strlen(id), 40);
    assert_int_equal(strspn(id + 8, "0123456789abcdef"), 32);
    assert_int_equal(random_id("", 24, id, sizeof(id)), 0);
    assert_int_equal(strlen(id), 24);
}

static void ids_differ(void **state) {
    char a[RANDOM_ID_MAX_DIGITS + 1], b[RANDOM_ID_MAX_DIGITS + 1];
    assert_int_equal(random_id("", RANDOM_ID_MAX_DIGITS, a, sizeof(a)), 0);
    assert_int_equal(random_id("", RANDOM_ID_MAX_DIGITS, b, sizeof(b)), 0);
    assert_string_not_equal(a, b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_id_is_its_prefix_and_hexadecimal_digits),
        cmocka_unit_test(ids_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
