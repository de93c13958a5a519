#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "engine/kv/block_pool.h"

/* A block that is handed out again is known to the cache no more. */
static int32_t alloc_and_forget(struct block_pool *pool) {
    int32_t block = block_pool_alloc(pool);
    if (block >= 0)
        block_pool_clear_cached(pool, block);
    return block;
}

/* A free block whose content is kept. */
static int32_t cache_one(struct block_pool *pool, int32_t tenant) {
    int32_t block = block_pool_alloc(pool);
    assert_true(block >= 0);
    assert_false(pool->blocks[block].cached);
    block_pool_set_cached(pool, block, tenant);
    return block;
}

static void test_low_blocks_first_then_the_latest_freed(void **state) {
    struct block_pool pool;
    assert_int_equal(block_pool_init(&pool, 4, 1), 0);
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
    assert_int_equal(block_pool_init(&pool, 2, 1), 0);
    block_pool_alloc(&pool);
    int32_t last = block_pool_alloc(&pool);
    assert_int_equal(block_pool_alloc(&pool), -1);
    assert_int_equal(pool.num_used, 2);
    block_pool_unref(&pool, last);
    assert_int_equal(block_pool_alloc(&pool), last);
    assert_int_equal(block_pool_alloc(&pool), -1);
    block_pool_finish(&pool);
}

static void test_a_pool_of_none(void **state) {
    struct block_pool pool;
    assert_int_equal(block_pool_init(&pool, 0, 1), 0);
    assert_int_equal(block_pool_alloc(&pool), -1);
    assert_int_equal(block_pool_num_free(&pool), 0);
    block_pool_finish(&pool);
}

static void test_the_last_owner_frees(void **state) {
    struct block_pool pool;
    assert_int_equal(block_pool_init(&pool, 2, 1), 0);
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

static void test_a_pinned_block_is_not_handed_out(void **state) {
    struct block_pool pool;
    assert_int_equal(block_pool_init(&pool, 1, 1), 0);
    int32_t block = block_pool_alloc(&pool);
    block_pool_pin(&pool, block);
    block_pool_pin(&pool, block);
    block_pool_unref(&pool, block);
    assert_int_equal(block_pool_alloc(&pool), -1);
    assert_int_equal(block_pool_num_free(&pool), 0);
    block_pool_unpin(&pool, block);
    assert_int_equal(block_pool_alloc(&pool), -1);
    block_pool_unpin(&pool, block);
    assert_int_equal(block_pool_num_free(&pool), 1);
    assert_int_equal(block_pool_alloc(&pool), block);
    block_pool_finish(&pool);
}

static void test_a_pinned_block_gets_an_owner_again(void **state) {
    struct block_pool pool;
    assert_int_equal(block_pool_init(&pool, 1, 1), 0);
    int32_t block = cache_one(&pool, 0);
    block_pool_pin(&pool, block);
    block_pool_unref(&pool, block);
    block_pool_ref(&pool, block);
    block_pool_unpin(&pool, block);
    assert_int_equal(pool.num_used, 1);
    assert_int_equal(block_pool_alloc(&pool), -1);
    block_pool_unref(&pool, block);
    assert_int_equal(block_pool_alloc(&pool), block);
    block_pool_finish(&pool);
}

static void test_cached_blocks_go_last_and_the_oldest_of_them_first(void **state) {
    struct block_pool pool;
    assert_int_equal(block_pool_init(&pool, 4, 1), 0);
    for (int i = 0; i < 3; i++)
        cache_one(&pool, 0);
    block_pool_unref(&pool, 1);
    block_pool_unref(&pool, 0);
    block_pool_unref(&pool, 2);
    assert_int_equal(block_pool_num_free(&pool), 4);
    assert_int_equal(alloc_and_forget(&pool), 3);
    assert_int_equal(alloc_and_forget(&pool), 1);
    assert_int_equal(alloc_and_forget(&pool), 0);
    assert_int_equal(alloc_and_forget(&pool), 2);
    assert_int_equal(alloc_and_forget(&pool), -1);
    block_pool_finish(&pool);
}

static void test_a_cached_block_that_was_used_again_is_young(void **state) {
    struct block_pool pool;
    assert_int_equal(block_pool_init(&pool, 3, 1), 0);
    for (int i = 0; i < 3; i++)
        cache_one(&pool, 0);
    for (int i = 0; i < 3; i++)
        block_pool_unref(&pool, i);
    block_pool_ref(&pool, 1); /* from the middle of the list */
    assert_int_equal(pool.num_used, 1);
    block_pool_ref(&pool, 0); /* from its start */
    block_pool_unref(&pool, 1);
    block_pool_unref(&pool, 0);
    assert_int_equal(alloc_and_forget(&pool), 2);
    assert_int_equal(alloc_and_forget(&pool), 1);
    assert_int_equal(alloc_and_forget(&pool), 0);
    block_pool_finish(&pool);
}

static void test_a_block_forgotten_in_use_is_bare_when_free(void **state) {
    struct block_pool pool;
    assert_int_equal(block_pool_init(&pool, 2, 1), 0);
    cache_one(&pool, 0);
    cache_one(&pool, 0);
    block_pool_unref(&pool, 0);
    block_pool_clear_cached(&pool, 1);
    block_pool_unref(&pool, 1);
    assert_int_equal(block_pool_alloc(&pool), 1);
    assert_int_equal(alloc_and_forget(&pool), 0);
    block_pool_finish(&pool);
}

static void test_who_has_most_loses_first(void **state) {
    struct block_pool pool;
    assert_int_equal(block_pool_init(&pool, 6, 3), 0);
    const int32_t tenants[] = {1, 0, 2, 5, 3000002, 4}; /* of block 0, 1, ..., modulo 3 */
    for (int i = 0; i < 6; i++)
        cache_one(&pool, tenants[i]);
    assert_int_equal(block_pool_num_cached(&pool), 0); /* of the free ones */
    for (int i = 0; i < 6; i++)
        block_pool_unref(&pool, i);
    assert_int_equal(block_pool_num_cached(&pool), 6);
    assert_int_equal(alloc_and_forget(&pool), 2); /* three in queue 2, two in 1, one in 0 */
    assert_int_equal(alloc_and_forget(&pool), 0); /* two in 1 and in 2 */
    assert_int_equal(alloc_and_forget(&pool), 3);
    assert_int_equal(alloc_and_forget(&pool), 1); /* one in each */
    assert_int_equal(alloc_and_forget(&pool), 5);
    assert_int_equal(alloc_and_forget(&pool), 4);
    assert_int_equal(alloc_and_forget(&pool), -1);
    block_pool_finish(&pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_low_blocks_first_then_the_latest_freed),
        cmocka_unit_test(test_exhaustion),
        cmocka_unit_test(test_a_pool_of_none),
        cmocka_unit_test(test_the_last_owner_frees),
        cmocka_unit_test(test_a_pinned_block_is_not_handed_out),
        cmocka_unit_test(test_a_pinned_block_gets_an_owner_again),
        cmocka_unit_test(test_cached_blocks_go_last_and_the_oldest_of_them_first),
        cmocka_unit_test(test_a_cached_block_that_was_used_again_is_young),
        cmocka_unit_test(test_a_block_forgotten_in_use_is_bare_when_free),
        cmocka_unit_test(test_who_has_most_loses_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
