#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "engine/kv/prefix_cache.h"

#include <stdio.h>
#include <string.h>

#define BLOCK_SIZE 4

static const int32_t some[BLOCK_SIZE] = {1, 2, 3, 4};
static const int32_t others[BLOCK_SIZE] = {1, 2, 3, 5};

static struct block_content content(uint64_t key, const int32_t *tokens) {
    return (struct block_content){.key = {key, 7}, .previous = {1, 1}, .tokens = tokens};
}

static int set_up(void **state) {
    static struct prefix_cache cache;
    *state = &cache;
    return prefix_cache_init(&cache, 5, BLOCK_SIZE, NULL);
}

static int tear_down(void **state) {
    prefix_cache_finish(*state);
    prefix_cache_finish(*state); /* zeroed by the first */
    return 0;
}

static void test_what_was_inserted_is_found(void **state) {
    struct prefix_cache *cache = *state;
    int32_t tokens[BLOCK_SIZE] = {9, 9, 9, 9};
    struct block_content mine = content(100, tokens), sought = content(100, some);
    assert_int_equal(prefix_cache_find(cache, &mine), -1);
    for (int i = 0; i < BLOCK_SIZE; i++)
        tokens[i] = some[i];
    assert_true(prefix_cache_insert(cache, 4, &mine));
    tokens[0] = 0; /* they were copied */
    assert_int_equal(prefix_cache_find(cache, &sought), 4);
    prefix_cache_remove(cache, 4);
    assert_int_equal(prefix_cache_find(cache, &sought), -1);
}

static void test_keys_of_one_bucket(void **state) {
    struct prefix_cache *cache = *state;
    for (int32_t block = 0; block < 5; block++) {
        struct block_content mine = content((uint64_t)block * 64, some);
        assert_true(prefix_cache_insert(cache, block, &mine));
    }
    prefix_cache_remove(cache, 2); /* from the middle, the end and the start of the chain */
    prefix_cache_remove(cache, 0);
    prefix_cache_remove(cache, 4);
    for (int32_t block = 0; block < 5; block++) {
        struct block_content mine = content((uint64_t)block * 64, some);
        assert_int_equal(prefix_cache_find(cache, &mine), block % 2 == 1 ? block : -1);
    }
}

static void test_a_key_alone_is_not_believed(void **state) {
    struct prefix_cache *cache = *state;
    struct block_content mine = content(100, some);
    assert_true(prefix_cache_insert(cache, 0, &mine));
    struct block_content tokens = content(100, others), previous = mine, tenant = mine, high = mine;
    previous.previous.high = 2;
    tenant.tenant = 1;
    high.key.high = 8;
    assert_int_equal(prefix_cache_find(cache, &tokens), -1);
    assert_int_equal(prefix_cache_find(cache, &previous), -1);
    assert_int_equal(prefix_cache_find(cache, &tenant), -1);
    assert_int_equal(prefix_cache_find(cache, &high), -1);
    assert_int_equal(prefix_cache_find(cache, &mine), 0);
}

static void test_the_first_content_of_a_key_stays(void **state) {
    struct prefix_cache *cache = *state;
    struct block_content mine = content(100, some), later = content(100, others);
    assert_true(prefix_cache_insert(cache, 0, &mine));
    assert_false(prefix_cache_insert(cache, 1, &later));
    assert_int_equal(prefix_cache_find(cache, &later), -1);
    assert_int_equal(prefix_cache_serial(cache, 1), 0);
    prefix_cache_remove(cache, 0);
    assert_true(prefix_cache_insert(cache, 1, &later));
    assert_int_equal(prefix_cache_find(cache, &later), 1);
}

static void test_no_serial_twice(void **state) {
    struct prefix_cache *cache = *state;
    struct block_content mine = content(100, some), other = content(101, others);
    assert_int_equal(prefix_cache_serial(cache, 0), 0);
    assert_true(prefix_cache_insert(cache, 0, &mine));
    uint64_t first = prefix_cache_serial(cache, 0);
    assert_true(prefix_cache_insert(cache, 1, &other));
    assert_true(prefix_cache_serial(cache, 1) != first);
    prefix_cache_remove(cache, 0);
    assert_int_equal(prefix_cache_serial(cache, 0), 0);
    assert_true(prefix_cache_insert(cache, 0, &mine));
    assert_true(prefix_cache_serial(cache, 0) != first);
    assert_true(prefix_cache_serial(cache, 0) != prefix_cache_serial(cache, 1));
    assert_true(first != 0);
}

/* --- Events --- */

static char told[200];

static void note_stored(void *context, const struct stored_block *mine) {
    size_t length = strlen(told);
    snprintf(told + length, sizeof(told) - length, "+%d/%d ", (int)mine->key.low, mine->tokens[3]);
}

static void note_removed(void *context, const struct block_key *key) {
    size_t length = strlen(told);
    snprintf(told + length, sizeof(told) - length, "-%d ", (int)key->low);
}

static void note_cleared(void *context) {
    strcat(told, "0 ");
}

static void test_every_change_is_told(void **state) {
    const struct kv_event_sink events = {
        .stored = note_stored, .removed = note_removed, .cleared = note_cleared};
    struct prefix_cache cache;
    struct block_content mine = content(100, some), twin = content(100, others),
                         other = content(101, others);
    told[0] = '\0';
    assert_int_equal(prefix_cache_init(&cache, 5, BLOCK_SIZE, &events), 0);
    assert_string_equal(told, "");
    assert_true(prefix_cache_insert(&cache, 0, &mine));
    assert_false(prefix_cache_insert(&cache, 1, &twin)); /* nothing changes */
    assert_true(prefix_cache_insert(&cache, 1, &other));
    assert_int_equal(cache.num_known, 2);
    prefix_cache_remove(&cache, 0);
    assert_int_equal(cache.num_known, 1);
    assert_true(prefix_cache_insert(&cache, 0, &mine));
    prefix_cache_clear(&cache);
    assert_int_equal(cache.num_known, 0);
    assert_int_equal(prefix_cache_find(&cache, &mine), -1);
    assert_int_equal(prefix_cache_serial(&cache, 0), 0);
    assert_true(prefix_cache_insert(&cache, 3, &mine));
    assert_string_equal(told, "+100/4 +101/5 -100 +100/4 0 +100/4 ");
    prefix_cache_finish(&cache);
    assert_string_equal(told, "+100/4 +101/5 -100 +100/4 0 +100/4 0 ");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_what_was_inserted_is_found, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_keys_of_one_bucket, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_key_alone_is_not_believed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_the_first_content_of_a_key_stays, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_no_serial_twice, set_up, tear_down),
        cmocka_unit_test(test_every_change_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
