/* Every allocation of the memory manager fails once. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "tests/unit/engine/kv/kv_fixture.h"
#include "engine/kv/block_manager.h"
#include "tests/unit/failing_allocations.h"

static void test_a_manager_without_memory(void **state) {
    const struct serving_limits limits = {.num_blocks = 3, .num_host_blocks = 2, .block_size = 4};
    const struct block_manager_config config = {
        .limits = &limits, .num_tenants = 2, .caching = true};
    long failures = 0;
    for (;; failures++) {
        struct block_manager manager = {.config.num_tenants = 77};
        allocations_left = failures;
        int status = block_manager_init(&manager, &config);
        allocations_left = -1;
        if (status == 0) {
            block_manager_finish(&manager);
            break;
        }
        assert_int_equal(status, -1);
        assert_int_equal(manager.config.num_tenants, 77);
    }
    assert_int_equal(failures, 4 + 9 + 3 + 3); /* pools, lists, cache, scratch */
}

static void test_nothing_is_allocated_later(void **state) {
    const struct serving_limits limits = {.num_blocks = 3, .num_host_blocks = 2, .block_size = 2};
    const struct block_manager_config config = {
        .limits = &limits, .num_tenants = 1, .caching = true};
    const int32_t tokens[] = {1, 2, 3};
    const struct token_view view = {tokens, 3, NULL, 0};
    struct block_key root = {1, 2};
    struct block_manager manager;
    struct block_table a, b;
    assert_int_equal(block_manager_init(&manager, &config), 0);
    assert_int_equal(block_table_init(&a, 2, 1, 0, &root), 0);
    assert_int_equal(block_table_init(&b, 2, 1, 0, &root), 0);
    allocations_left = 0;
    assert_int_equal(block_manager_match(&manager, &a, &view, 3), 0);
    assert_true(block_manager_grow(&manager, &a));
    assert_true(block_manager_grow(&manager, &a));
    block_manager_publish(&manager, &a, &view, 3);
    block_manager_fork(&manager, &a, &b, 3);
    assert_true(block_manager_make_writable(&manager, &b, 3));
    kv_run_step(&manager);
    block_manager_release(&manager, &b);
    struct block_table *one = &a;
    assert_true(block_manager_swap_out(&manager, &one, 1));
    assert_true(block_manager_swap_in(&manager, &one, 1));
    block_manager_release(&manager, &a);
    allocations_left = -1;
    block_table_finish(&a);
    block_table_finish(&b);
    block_manager_finish(&manager);
}

static void test_a_table_without_memory(void **state) {
    struct block_table table = {.max_blocks = 77};
    struct block_key root = {1, 2};
    allocations_left = 0;
    int status = block_table_init(&table, 2, 1, 0, &root);
    allocations_left = -1;
    assert_int_equal(status, -1);
    assert_int_equal(table.max_blocks, 77);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_manager_without_memory),
        cmocka_unit_test(test_nothing_is_allocated_later),
        cmocka_unit_test(test_a_table_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
