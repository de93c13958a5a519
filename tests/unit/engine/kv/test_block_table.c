#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "config/serving_limits.h"
#include "engine/kv/block_table.h"

static const struct block_key root = {3, 4};

static void test_blocks_for(void **state) {
    assert_int_equal(blocks_for_tokens(0, 16), 0);
    assert_int_equal(blocks_for_tokens(1, 16), 1);
    assert_int_equal(blocks_for_tokens(16, 16), 1);
    assert_int_equal(blocks_for_tokens(17, 16), 2);
    assert_int_equal(blocks_for_tokens(INT32_MAX, 16), INT32_MAX / 16 + 1);
}

static void test_a_new_table_is_empty_and_at_its_root(void **state) {
    struct block_table table;
    assert_int_equal(block_table_init(&table, 3, 1, 2, &root), 0);
    assert_int_equal(table.num_blocks, 0);
    assert_int_equal(table.max_blocks, 3);
    assert_int_equal(table.tenant, 2);
    assert_int_equal(table.num_keyed, 0);
    assert_true(block_key_equal(&table.root, &root));
    assert_true(block_key_equal(&table.key, &root));
    assert_false(table.on_host);
    block_table_finish(&table);
    block_table_finish(&table); /* zeroed by the first */
}

static void test_slots_follow_the_blocks(void **state) {
    struct block_table table;
    assert_int_equal(block_table_init(&table, 3, 1, 0, &root), 0);
    table.blocks[table.num_blocks++] = -1;
    table.num_dropped = 1;
    table.blocks[table.num_blocks++] = 7;
    table.blocks[table.num_blocks++] = 2;
    assert_int_equal(block_table_slot(&table, 0, 4, 4), 28);
    assert_int_equal(block_table_slot(&table, 0, 4, 7), 31);
    assert_int_equal(block_table_slot(&table, 0, 4, 8), 8);
    assert_int_equal(block_table_slot(&table, 0, 4, 11), 11);
    table.num_blocks = 0;
    block_table_finish(&table);
}

static void test_a_cut_chain_starts_again(void **state) {
    struct block_table table;
    assert_int_equal(block_table_init(&table, 3, 1, 0, &root), 0);
    table.num_keyed = 2;
    table.key = (struct block_key){5, 6};
    block_table_cut_keys(&table, 2);
    assert_int_equal(table.num_keyed, 2);
    assert_int_equal(table.key.low, 5);
    block_table_cut_keys(&table, 1);
    assert_int_equal(table.num_keyed, 0);
    assert_true(block_key_equal(&table.key, &root));
    block_table_finish(&table);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks_for),
        cmocka_unit_test(test_a_new_table_is_empty_and_at_its_root),
        cmocka_unit_test(test_slots_follow_the_blocks),
        cmocka_unit_test(test_a_cut_chain_starts_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
