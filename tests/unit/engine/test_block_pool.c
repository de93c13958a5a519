#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "engine/kv/block_pool.h"

static void test_low_blocks_first_then_the_latest_freed(void **state) {
    struct block_pool pool;
    assert_int_equal(block_pool_init(&pool, 4), 0);
    assert_int_equal(block_pool_alloc(&pool), 0);
    assert_int_equal(block_pool_alloc(&pool), 1);
    block_pool_unref(&pool, 0);
    assert_int_equal(block_pool_alloc(&pool), 0); /* not 2: that page was never touched */
    assert_int_equal(block_pool_alloc(&pool), 2);
    assert_int_equal(block_pool_num_free(&pool), 1);
    block_pool_finish(&pool);
}

static void test_exhaustion(void **state) {
    struct block_pool pool;
    assert_int_equal(block_pool_init(&pool, 2), 0);
    block_pool_alloc(&pool);
    int32_t last = block_pool_alloc(&pool);
    assert_int_equal(block_pool_alloc(&pool), -1);
    assert_int_equal(pool.num_used, 2);
    block_pool_unref(&pool, last);
    assert_int_equal(block_pool_alloc(&pool), last);
    assert_int_equal(block_pool_alloc(&pool), -1);
    block_pool_finish(&pool);
}

static void test_the_last_owner_frees(void **state) {
    struct block_pool pool;
    assert_int_equal(block_pool_init(&pool, 2), 0);
    int32_t block = block_pool_alloc(&pool);
    block_pool_ref(&pool, block);
    block_pool_ref(&pool, block);
    block_pool_unref(&pool, block);
    block_pool_unref(&pool, block);
    assert_int_equal(pool.num_used, 1);
    block_pool_unref(&pool, block);
    assert_int_equal(pool.num_used, 0);
    assert_int_equal(block_pool_num_free(&pool), 2);
    block_pool_finish(&pool);
    block_pool_finish(&pool); /* zeroed by the first */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_low_blocks_first_then_the_latest_freed),
        cmocka_unit_test(test_exhaustion),
        cmocka_unit_test(test_the_last_owner_frees),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
