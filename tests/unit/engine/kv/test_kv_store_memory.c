/* Every allocation of the store fails once. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "config/base/log.h"
#include "tests/unit/engine/kv/kv_store_fixture.h"
#include "tests/unit/failing_allocations.h"

static void test_a_store_without_memory(void **state) {
    struct store_fixture fixture;
    struct store_block block;
    long failures = 0;
    store_set_up(&fixture, 4);
    for (;; failures++) {
        allocations_left = failures;
        int status = store_open(&fixture);
        allocations_left = -1;
        if (status == 0)
            break;
        assert_int_equal(status, -1);
        assert_null(fixture.store);
        assert_int_equal(fixture.err.code, ERROR_MEMORY);
    }
    assert_true(failures > 15);
    store_make_chain(fixture.store, 1, 0, &block, 1);
    assert_true(store_put(fixture.store, &block));
    assert_int_equal(store_get(fixture.store, &block), STORE_RIGHT);
    store_tear_down(&fixture);
}

static void test_nothing_is_allocated_later(void **state) {
    struct store_fixture fixture;
    struct store_block blocks[6];
    store_set_up(&fixture, 4);
    assert_int_equal(store_open(&fixture), 0);
    allocations_left = 0;
    store_make_chain(fixture.store, 1, 0, blocks, 3);
    store_make_chain(fixture.store, 2, 0, blocks + 3, 3);
    for (int i = 0; i < 6; i++)
        assert_true(store_put(fixture.store, &blocks[i]));
    assert_int_equal(store_get(fixture.store, &blocks[5]), STORE_RIGHT);
    kv_store_forget_all(fixture.store);
    assert_true(store_put(fixture.store, &blocks[0]));
    allocations_left = -1;
    store_tear_down(&fixture);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_store_without_memory),
        cmocka_unit_test(test_nothing_is_allocated_later),
    };
    log_set_level(LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
