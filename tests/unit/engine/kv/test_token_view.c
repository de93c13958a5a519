#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "engine/kv/token_view.h"

static const int32_t prompt[] = {10, 11, 12};
static const int32_t output[] = {20, 21};
static const struct token_view view = {prompt, 3, output, 2};

static void test_across_the_border(void **state) {
    int32_t out[5] = {0};
    token_view_copy(&view, 0, 5, out);
    assert_memory_equal(out, ((int32_t[]){10, 11, 12, 20, 21}), sizeof(out));
    token_view_copy(&view, 2, 2, out);
    assert_memory_equal(out, ((int32_t[]){12, 20, 12, 20, 21}), sizeof(out));
}

static void test_either_side(void **state) {
    int32_t out[2] = {0};
    token_view_copy(&view, 1, 2, out);
    assert_memory_equal(out, ((int32_t[]){11, 12}), sizeof(out));
    token_view_copy(&view, 3, 2, out);
    assert_memory_equal(out, ((int32_t[]){20, 21}), sizeof(out));
    token_view_copy(&view, 4, 1, out);
    assert_int_equal(out[0], 21);
}

static void test_nothing(void **state) {
    int32_t out = 7;
    token_view_copy(&view, 5, 0, &out);
    token_view_copy(&(struct token_view){prompt, 3, NULL, 0}, 3, 0, &out);
    assert_int_equal(out, 7);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_across_the_border),
        cmocka_unit_test(test_either_side),
        cmocka_unit_test(test_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
