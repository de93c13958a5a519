/* One assertion that does not hold: the program must not pass. */
#include <cmocka.h>

static void test_fails(void **state) {
    assert_int_equal(1, 2);
}

static void test_goes_on(void **state) {
    assert_null(*state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fails),
        cmocka_unit_test(test_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
