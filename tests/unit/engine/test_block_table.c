#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "engine/kv/block_table.h"

static void test_blocks_for(void **state) {
    assert_int_equal(block_table_blocks_for(0, 16), 0);
    assert_int_equal(block_table_blocks_for(1, 16), 1);
    assert_int_equal(block_table_blocks_for(16, 16), 1);
    assert_int_equal(block_table_blocks_for(17, 16), 2);
    assert_int_equal(block_table_blocks_for(INT32_MAX, 16), INT32_MAX / 16 + 1);
}

static void test_slots_follow_the_blocks(void **state) {
    struct block_pool pool;
    struct block_table table;
    assert_int_equal(block_pool_init(&pool, 8), 0);
    assert_int_equal(block_table_init(&table, 3), 0);
    assert_true(block_table_grow(&table, &pool));
    block_pool_alloc(&pool); /* somebody else's block 1 */
    assert_true(block_table_grow(&table, &pool));
    assert_int_equal(block_table_slot(&table, 4, 0), 0);
    assert_int_equal(block_table_slot(&table, 4, 3), 3);
    assert_int_equal(block_table_slot(&table, 4, 4), 8);
    assert_int_equal(block_table_slot(&table, 4, 7), 11);
    block_table_release(&table, &pool);
    assert_int_equal(table.num_blocks, 0);
    assert_int_equal(pool.num_used, 1);
    block_table_finish(&table);
    block_pool_finish(&pool);
}

static void test_grow_fails_when_the_pool_is_empty(void **state) {
    struct block_pool pool;
    struct block_table table;
    assert_int_equal(block_pool_init(&pool, 1), 0);
    assert_int_equal(block_table_init(&table, 3), 0);
    assert_true(block_table_grow(&table, &pool));
    assert_false(block_table_grow(&table, &pool));
    assert_int_equal(table.num_blocks, 1);
    block_table_release(&table, &pool);
    block_table_finish(&table);
    block_pool_finish(&pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks_for),
        cmocka_unit_test(test_slots_follow_the_blocks),
        cmocka_unit_test(test_grow_fails_when_the_pool_is_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
