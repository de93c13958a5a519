/* Each assertion holds where it should and fails where it should, and fixtures run in their order.
 * Groups run inside; what they print is not read, the exit status is the result. */
#include <cmocka.h>

#include <math.h>

/* --- Assertions ---------------------------------------------------------------------------------
 */

static int evaluations;

static int next(void) {
    return ++evaluations;
}

static void test_all_hold(void **state) {
    char text[] = "text";
    evaluations = 0;
    assert_int_equal(next(), 1);
    assert_in_range(next(), 2, 2);
    assert_true(next() == 3);
    assert_true(state);
    assert_false(0);
    assert_null(NULL);
    assert_non_null(text);
    assert_ptr_equal(text, &text[0]);
    assert_ptr_not_equal(text, &text[1]);
    assert_int_equal(-1, (int64_t)-1);
    assert_int_not_equal(0, 1);
    assert_in_range(UINT64_MAX, 1, UINT64_MAX);
    assert_float_equal(1.0f, 1.25f, 0.25f);
    assert_float_equal(INFINITY, INFINITY, 0.0f);
    assert_string_equal(text, "text");
    assert_string_not_equal(text, "texts");
    assert_memory_equal(text, "text", sizeof(text));
    assert_memory_equal(NULL, NULL, 0);
}

static int num_survivors;

#define NAME_FAILING(name, assertion)                                                              \
    static void name(void **state) {                                                               \
        assertion;                                                                                 \
        num_survivors++;                                                                           \
    }
NAME_FAILING(fails_true, assert_true(0))
NAME_FAILING(fails_false, assert_false(1))
NAME_FAILING(fails_null, assert_null(""))
NAME_FAILING(fails_non_null, assert_non_null(NULL))
NAME_FAILING(fails_ptr_equal, assert_ptr_equal(&num_survivors, &evaluations))
NAME_FAILING(fails_ptr_not_equal, assert_ptr_not_equal(state, state))
NAME_FAILING(fails_int_equal, assert_int_equal(UINT64_C(1) << 32, 0))
NAME_FAILING(fails_int_not_equal, assert_int_not_equal(7, 7))
NAME_FAILING(fails_below_range, assert_in_range(1, 2, 3))
NAME_FAILING(fails_above_range, assert_in_range(4, 2, 3))
NAME_FAILING(fails_float_equal, assert_float_equal(1.0f, 1.5f, 0.25f))
NAME_FAILING(fails_nan, assert_float_equal(NAN, NAN, 1.0f))
NAME_FAILING(fails_string_equal, assert_string_equal("a", "ab"))
NAME_FAILING(fails_string_not_equal, assert_string_not_equal("a", "a"))
NAME_FAILING(fails_memory_equal, assert_memory_equal("ab", "ac", 2))
NAME_FAILING(fails_fail, fail())
NAME_FAILING(fails_fail_msg, fail_msg("%d", 1))
NAME_FAILING(skips, skip())

static int assertions_fail(void) {
    const struct CMUnitTest hold[] = {cmocka_unit_test(test_all_hold), cmocka_unit_test(skips)};
    const struct CMUnitTest not_hold[] = {
        cmocka_unit_test(fails_true),         cmocka_unit_test(fails_false),
        cmocka_unit_test(fails_null),         cmocka_unit_test(fails_non_null),
        cmocka_unit_test(fails_ptr_equal),    cmocka_unit_test(fails_ptr_not_equal),
        cmocka_unit_test(fails_int_equal),    cmocka_unit_test(fails_int_not_equal),
        cmocka_unit_test(fails_below_range),  cmocka_unit_test(fails_above_range),
        cmocka_unit_test(fails_float_equal),  cmocka_unit_test(fails_nan),
        cmocka_unit_test(fails_string_equal), cmocka_unit_test(fails_string_not_equal),
        cmocka_unit_test(fails_memory_equal), cmocka_unit_test(fails_fail),
        cmocka_unit_test(fails_fail_msg),
    };
    return cmocka_run_group_tests(hold, NULL, NULL) == 0 &&
           cmocka_run_group_tests(not_hold, NULL, NULL) == sizeof(not_hold) / sizeof(not_hold[0]) &&
           num_survivors == 0;
}

/* --- Fixtures -----------------------------------------------------------------------------------
 */

static char calls[64];

static int note(char call) {
    size_t length = strlen(calls);
    calls[length] = call;
    calls[length + 1] = '\0';
    return 0;
}

static int set_up_group(void **state) {
    *state = calls;
    return note('G');
}

static int tear_down_group(void **state) {
    return note('g');
}

static int set_up(void **state) {
    return note('S');
}

static int tear_down(void **state) {
    return note('s');
}

static int refuse(void **state) {
    note('R');
    return -1;
}

static void test_state(void **state) {
    note('T');
    assert_ptr_equal(*state, calls);
}

static void test_failing(void **state) {
    note('F');
    fail();
}

static int fixtures_run(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_state),
        cmocka_unit_test_setup_teardown(test_failing, set_up, tear_down),
        cmocka_unit_test_setup(test_state, refuse),
        cmocka_unit_test_setup_teardown(test_state, set_up, refuse),
    };
    const struct CMUnitTest prestate[] = {cmocka_unit_test_prestate(test_state, calls)};
    return cmocka_run_group_tests(tests, set_up_group, tear_down_group) == 3 &&
           strcmp(calls, "GTSFsRSTRg") == 0 && cmocka_run_group_tests(prestate, NULL, NULL) == 0 &&
           cmocka_run_group_tests(prestate, refuse, NULL) == 1 &&
           cmocka_run_group_tests(prestate, NULL, refuse) == 1;
}

int main(void) {
    return assertions_fail() && fixtures_run() ? 0 : 1;
}
