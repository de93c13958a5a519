#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "tests/unit/engine/kv/kv_fixture.h"

#include <string.h>

static void assert_moves(const struct move_list *moves, int32_t count, const int32_t *pairs) {
    assert_int_equal(moves->count, count);
    for (int32_t i = 0; i < count; i++) {
        assert_int_equal(moves->from[i], pairs[2 * i]);
        assert_int_equal(moves->to[i], pairs[2 * i + 1]);
    }
}

static int32_t references(const struct kv_fixture *kv, int32_t block) {
    return kv->manager.pool.blocks[block].references;
}

/* --- growing and giving back --- */

static void test_a_table_grows_until_no_block_is_left(void **state) {
    struct kv_fixture kv;
    kv_fixture_init(&kv, 2, 0);
    assert_true(block_manager_grow(&kv.manager, &kv.tables[0]));
    assert_true(block_manager_grow(&kv.manager, &kv.tables[0]));
    assert_false(block_manager_grow(&kv.manager, &kv.tables[0]));
    assert_int_equal(kv.tables[0].num_blocks, 2);
    block_manager_release(&kv.manager, &kv.tables[0]);
    assert_int_equal(kv.tables[0].num_blocks, 0);
    assert_true(block_manager_grow(&kv.manager, &kv.tables[1]));
    assert_int_equal(kv.tables[1].blocks[0], 0); /* the first one was given back last */
    kv_fixture_finish(&kv);
}

static void test_blocks_before_the_window_are_dropped(void **state) {
    struct kv_fixture kv;
    int32_t room[16];
    struct token_view tokens = kv_tokens(1, room, 16);
    kv_fixture_init(&kv, 8, 8);
    struct block_table *table = &kv.tables[0];
    kv_compute(&kv, table, &tokens, 9);
    block_manager_drop_before(&kv.manager, table, 3);
    assert_int_equal(table->num_dropped, 0);
    block_manager_drop_before(&kv.manager, table, 8);
    assert_int_equal(table->num_dropped, 2);
    assert_int_equal(table->blocks[1], -1);
    assert_int_equal(kv.manager.pool.num_used, 1);
    block_manager_drop_before(&kv.manager, table, 4); /* none comes back */
    assert_int_equal(table->num_dropped, 2);
    assert_false(block_manager_num_copies(&kv.manager, table, 9));

    block_manager_fork(&kv.manager, table, &kv.tables[1], 9);
    assert_int_equal(kv.tables[1].num_dropped, 2);
    assert_true(block_manager_swap_out(&kv.manager, &table, 1));
    kv_run_step(&kv.manager);
    assert_true(block_manager_swap_in(&kv.manager, &table, 1));
    assert_int_equal(table->blocks[1], -1);
    assert_true(table->blocks[2] >= 0);
    kv_compute(&kv, table, &tokens, 12); /* the chain continues past what was dropped */
    assert_int_equal(table->num_keyed, 3);
    block_manager_drop_before(&kv.manager, table, 100);
    assert_int_equal(table->num_dropped, 3);
    block_manager_release(&kv.manager, table);
    assert_true(block_manager_grow(&kv.manager, table)); /* as good as new */
    assert_int_equal(block_table_slot(table, 0, KV_BLOCK_SIZE, 0) % KV_BLOCK_SIZE, 0);
    kv_fixture_finish(&kv);
}

static void test_a_table_is_cut_back(void **state) {
    struct kv_fixture kv;
    int32_t room[16];
    struct token_view tokens = kv_tokens(1, room, 16);
    kv_fixture_init(&kv, 8, 0);
    struct block_table *table = &kv.tables[0];
    kv_compute(&kv, table, &tokens, 13);
    block_manager_trim(&kv.manager, table, 12);
    assert_int_equal(table->num_blocks, 3);
    assert_int_equal(table->num_keyed, 3);
    block_manager_trim(&kv.manager, table, 5);
    assert_int_equal(table->num_blocks, 2);
    assert_int_equal(table->num_keyed, 0);
    assert_int_equal(kv.manager.pool.num_used, 2);
    block_manager_trim(&kv.manager, table, 16); /* grows nothing */
    assert_int_equal(table->num_blocks, 2);
    kv_fixture_finish(&kv);
}

/* --- sharing and copying on write --- */

static void test_a_fork_shares_all_blocks_the_last_one_too(void **state) {
    struct kv_fixture kv;
    int32_t room[8];
    struct token_view tokens = kv_tokens(1, room, 8);
    kv_fixture_init(&kv, 8, 0);
    kv_compute(&kv, &kv.tables[0], &tokens, 6);
    assert_true(block_manager_grow(&kv.manager, &kv.tables[0])); /* for tokens to come */
    block_manager_fork(&kv.manager, &kv.tables[0], &kv.tables[1], 6);
    assert_int_equal(kv.tables[1].num_blocks, 2);
    assert_memory_equal(kv.tables[0].blocks, kv.tables[1].blocks, 2 * sizeof(int32_t));
    assert_int_equal(kv.tables[1].num_keyed, 1);
    assert_true(block_key_equal(&kv.tables[0].key, &kv.tables[1].key));
    assert_int_equal(kv.manager.pool.num_used, 3);
    assert_int_equal(kv.manager.copies.count, 0);
    struct block_table *both[] = {&kv.tables[0], &kv.tables[1]};
    assert_int_equal(block_manager_count_distinct(&kv.manager, both, 2), 3);
    assert_int_equal(block_manager_count_distinct(&kv.manager, both, 1), 3);
    assert_int_equal(block_manager_count_distinct(&kv.manager, both, 0), 0);
    kv_fixture_finish(&kv);
}

static void test_a_fork_of_fewer_tokens_has_no_keys_beyond_them(void **state) {
    struct kv_fixture kv;
    int32_t room[8];
    struct token_view tokens = kv_tokens(1, room, 8);
    kv_fixture_init(&kv, 8, 0);
    kv_compute(&kv, &kv.tables[0], &tokens, 8);
    block_manager_fork(&kv.manager, &kv.tables[0], &kv.tables[1], 6);
    assert_int_equal(kv.tables[1].num_blocks, 2);
    assert_int_equal(kv.tables[1].num_keyed, 0);
    kv_fixture_finish(&kv);
}

static void test_the_first_writer_copies_and_the_last_owner_does_not(void **state) {
    struct kv_fixture kv;
    int32_t room[8];
    struct token_view tokens = kv_tokens(1, room, 8);
    kv_fixture_init(&kv, 4, 0);
    struct block_table *a = &kv.tables[0], *b = &kv.tables[1];
    kv_compute(&kv, a, &tokens, 6);
    block_manager_fork(&kv.manager, a, b, 6);
    int32_t shared = a->blocks[1];
    assert_true(block_manager_num_copies(&kv.manager, a, 6));
    assert_true(block_manager_num_copies(&kv.manager, b, 6));
    assert_false(block_manager_num_copies(&kv.manager, b, 8)); /* not there yet */
    assert_true(block_manager_make_writable(&kv.manager, a, 6));
    assert_int_not_equal(a->blocks[1], shared);
    assert_moves(&kv.manager.copies, 1, (int32_t[]){shared, a->blocks[1]});
    assert_false(block_manager_num_copies(&kv.manager, b, 6));
    assert_true(block_manager_make_writable(&kv.manager, b, 6));
    assert_int_equal(b->blocks[1], shared);
    assert_int_equal(kv.manager.copies.count, 1);
    assert_int_equal(kv.manager.num_copied_blocks, 0);
    kv_run_step(&kv.manager);
    assert_int_equal(kv.manager.copies.count, 0);
    assert_int_equal(kv.manager.num_copied_blocks, 1);
    kv_fixture_finish(&kv);
}

static void test_a_copy_needs_a_block(void **state) {
    struct kv_fixture kv;
    int32_t room[8];
    struct token_view tokens = kv_tokens(1, room, 8);
    kv_fixture_init(&kv, 2, 0);
    kv_compute(&kv, &kv.tables[0], &tokens, 6);
    block_manager_fork(&kv.manager, &kv.tables[0], &kv.tables[1], 6);
    assert_false(block_manager_make_writable(&kv.manager, &kv.tables[1], 6));
    assert_int_equal(kv.tables[1].blocks[1], kv.tables[0].blocks[1]);
    assert_int_equal(kv.manager.copies.count, 0);
    kv_fixture_finish(&kv);
}

static void test_a_copys_source_is_kept_until_the_step_has_run(void **state) {
    struct kv_fixture kv;
    int32_t room[8];
    struct token_view tokens = kv_tokens(1, room, 8);
    kv_fixture_init(&kv, 3, 0);
    struct block_table *a = &kv.tables[0], *b = &kv.tables[1];
    kv_compute(&kv, a, &tokens, 6);
    block_manager_fork(&kv.manager, a, b, 6);
    assert_true(block_manager_make_writable(&kv.manager, b, 6));
    block_manager_release(&kv.manager, a);
    assert_false(block_manager_grow(&kv.manager, &kv.tables[2]));
    kv_run_step(&kv.manager);
    assert_true(block_manager_grow(&kv.manager, &kv.tables[2]));
    kv_fixture_finish(&kv);
}

static void test_a_release_takes_its_copies_back(void **state) {
    struct kv_fixture kv;
    int32_t room[8];
    struct token_view tokens = kv_tokens(1, room, 8);
    kv_fixture_init(&kv, 4, 0);
    struct block_table *a = &kv.tables[0], *b = &kv.tables[1], *c = &kv.tables[2];
    kv_compute(&kv, a, &tokens, 6);
    block_manager_fork(&kv.manager, a, b, 6);
    block_manager_fork(&kv.manager, a, c, 6);
    int32_t shared = a->blocks[1];
    assert_true(block_manager_make_writable(&kv.manager, b, 6));
    assert_true(block_manager_make_writable(&kv.manager, c, 6));
    block_manager_release(&kv.manager, b);
    assert_moves(&kv.manager.copies, 1, (int32_t[]){shared, c->blocks[1]});
    assert_int_equal(kv.manager.pool.blocks[shared].pins, 1);
    block_manager_release(&kv.manager, a); /* c's copy is still to be made */
    assert_int_equal(kv.manager.pool.num_used, 3);
    block_manager_release(&kv.manager, c);
    assert_int_equal(kv.manager.copies.count, 0);
    assert_int_equal(kv.manager.pool.num_used, 0);
    kv_fixture_finish(&kv);
}

/* Within a list no block is both a source and a destination. */
static void test_a_copy_of_a_copy_of_this_step_is_made_from_the_first_source(void **state) {
    struct kv_fixture kv;
    int32_t room[8];
    struct token_view tokens = kv_tokens(1, room, 8);
    kv_fixture_init(&kv, 8, 0);
    struct block_table *a = &kv.tables[0], *b = &kv.tables[1], *c = &kv.tables[2];
    kv_compute(&kv, a, &tokens, 6);
    block_manager_fork(&kv.manager, a, b, 6);
    int32_t source = a->blocks[1];
    assert_true(block_manager_make_writable(&kv.manager, b, 6));
    block_manager_fork(&kv.manager, b, c, 6);
    assert_true(block_manager_make_writable(&kv.manager, c, 6));
    assert_moves(&kv.manager.copies, 2, (int32_t[]){source, b->blocks[1], source, c->blocks[1]});
    kv_fixture_finish(&kv);
}

/* --- found again by content --- */

static void test_a_prefix_is_found_up_to_the_limit(void **state) {
    struct kv_fixture kv;
    int32_t room[16];
    struct token_view tokens = kv_tokens(1, room, 16);
    kv_fixture_init(&kv, 8, 0);
    struct block_table *a = &kv.tables[0], *b = &kv.tables[1];
    kv_compute(&kv, a, &tokens, 14); /* 3 full blocks */
    assert_int_equal(block_manager_match(&kv.manager, b, &tokens, 11), 8);
    assert_int_equal(b->num_blocks, 2);
    assert_memory_equal(a->blocks, b->blocks, 2 * sizeof(int32_t));
    assert_int_equal(references(&kv, a->blocks[0]), 2);
    assert_int_equal(block_manager_match(&kv.manager, b, &tokens, 16), 4); /* later, some more */
    assert_int_equal(b->num_blocks, 3);
    assert_int_equal(block_manager_match(&kv.manager, b, &tokens, 16), 0); /* not full */
    assert_int_equal(block_manager_match(&kv.manager, &kv.tables[2], &tokens, 3), 0);
    kv_fixture_finish(&kv);
}

static void test_a_match_never_overfills_a_table(void **state) {
    struct kv_fixture kv;
    int32_t room[4 * (KV_MAX_BLOCKS + 1)];
    struct token_view tokens = kv_tokens(1, room, 4 * (KV_MAX_BLOCKS + 1));
    struct block_table *a = &kv.tables[0];
    struct block_table small;
    kv_fixture_init(&kv, 16, 0);
    assert_int_equal(block_table_init(&small, 2, 1, 0, &a->root), 0);
    kv_compute(&kv, a, &tokens, 4 * KV_MAX_BLOCKS);
    assert_int_equal(block_manager_match(&kv.manager, &small, &tokens, 4 * KV_MAX_BLOCKS), 8);
    block_manager_release(&kv.manager, &small);
    block_table_finish(&small);
    kv_fixture_finish(&kv);
}

static void test_a_flushed_cache_finds_nothing_and_tables_keep_their_blocks(void **state) {
    struct kv_fixture kv;
    int32_t room[16];
    struct token_view tokens = kv_tokens(1, room, 16);
    kv_fixture_init(&kv, 8, 0);
    struct block_table *kept = &kv.tables[0], *freed = &kv.tables[1], *later = &kv.tables[2];
    kv_compute(&kv, kept, &tokens, 9);
    int32_t other_room[16];
    struct token_view other = kv_tokens(2, other_room, 16);
    kv_compute(&kv, freed, &other, 8);
    block_manager_release(&kv.manager, freed);
    assert_int_equal(block_pool_num_cached(&kv.manager.pool), 2);

    block_manager_flush_cache(&kv.manager);
    assert_int_equal(block_pool_num_cached(&kv.manager.pool), 0);
    assert_int_equal(block_pool_num_free(&kv.manager.pool), 5);
    assert_int_equal(kept->num_blocks, 3);
    assert_int_equal(block_manager_match(&kv.manager, later, &tokens, 16), 0);
    assert_int_equal(block_manager_match(&kv.manager, later, &other, 16), 0);

    kv_compute(&kv, later, &tokens, 8); /* what is computed anew is found */
    assert_int_equal(block_manager_match(&kv.manager, &kv.tables[3], &tokens, 16), 8);
    kv_fixture_finish(&kv);
}

static void test_freed_blocks_are_found_the_prefix_longest(void **state) {
    struct kv_fixture kv;
    int32_t room[16];
    struct token_view tokens = kv_tokens(1, room, 16);
    kv_fixture_init(&kv, 4, 0);
    struct block_table *a = &kv.tables[0], *b = &kv.tables[1];
    kv_compute(&kv, a, &tokens, 16);
    block_manager_release(&kv.manager, a);
    assert_int_equal(kv.manager.pool.num_used, 0);
    assert_true(block_manager_grow(&kv.manager, b)); /* in place of the last one */
    assert_int_equal(block_manager_match(&kv.manager, a, &tokens, 16), 12);
    assert_int_equal(a->num_keyed, 3);
    kv_fixture_finish(&kv);
}

static void check_apart(int32_t tenant) {
    struct kv_fixture kv;
    int32_t room[8];
    struct token_view tokens = kv_tokens(1, room, 8);
    struct block_table other, salted;
    struct block_key other_root, salted_root;
    kv_fixture_init(&kv, 8, 0);
    other_root = block_key_root(&kv.manager.config.secret, tenant, NULL, 0);
    salted_root = block_key_root(&kv.manager.config.secret, 0, "salt", 4);
    assert_int_equal(block_table_init(&other, 4, 1, tenant, &other_root), 0);
    assert_int_equal(block_table_init(&salted, 4, 1, 0, &salted_root), 0);
    kv_compute(&kv, &kv.tables[0], &tokens, 8);
    assert_int_equal(block_manager_match(&kv.manager, &other, &tokens, 8), 0);
    assert_int_equal(block_manager_match(&kv.manager, &salted, &tokens, 8), 0);
    assert_int_equal(block_manager_match(&kv.manager, &kv.tables[1], &tokens, 8), 8);
    assert_false(
        block_manager_same_next(&kv.manager, &other, &tokens, &salted, &tokens, other.num_blocks));
    /* even if the keys were equal */
    other.root = other.key = kv.tables[0].root;
    assert_int_equal(block_manager_match(&kv.manager, &other, &tokens, 8), 0);
    block_table_finish(&other);
    block_table_finish(&salted);
    kv_fixture_finish(&kv);
}

/* The third has the queue of the first, as a key in the place of one that is gone. */
static void test_caches_of_two_tenants_or_salts_are_apart(void **state) {
    check_apart(1);
    check_apart(2);
}

static void test_a_duplicate_is_replaced(void **state) {
    struct kv_fixture kv;
    int32_t room[8];
    struct token_view tokens = kv_tokens(1, room, 8);
    kv_fixture_init(&kv, 8, 0);
    struct block_table *a = &kv.tables[0], *b = &kv.tables[1], *c = &kv.tables[2];
    for (int i = 0; i < 4; i++) /* both computed the same at once */
        assert_true(block_manager_grow(&kv.manager, i % 2 == 0 ? a : b));
    block_manager_fork(&kv.manager, b, c, 8);
    block_manager_publish(&kv.manager, a, &tokens, 7);
    assert_int_equal(a->num_keyed, 1);
    block_manager_publish(&kv.manager, b, &tokens, 8);
    assert_int_equal(b->blocks[0], a->blocks[0]);
    assert_int_not_equal(b->blocks[1], a->blocks[1]);
    assert_int_not_equal(c->blocks[0], a->blocks[0]); /* each replaces its own */
    block_manager_publish(&kv.manager, a, &tokens, 8);
    assert_int_equal(b->blocks[1], a->blocks[1]);
    block_manager_publish(&kv.manager, c, &tokens, 8);
    assert_memory_equal(c->blocks, a->blocks, 2 * sizeof(int32_t));
    assert_int_equal(references(&kv, a->blocks[0]), 3);
    assert_int_equal(kv.manager.pool.num_used, 2);
    kv_fixture_finish(&kv);
}

static void test_a_block_that_is_written_to_is_forgotten(void **state) {
    struct kv_fixture kv;
    int32_t room[8], other_room[8];
    struct token_view tokens = kv_tokens(1, room, 8), changed = kv_tokens(1, other_room, 8);
    kv_fixture_init(&kv, 8, 0);
    struct block_table *a = &kv.tables[0], *b = &kv.tables[1];
    kv_compute(&kv, a, &tokens, 8);
    assert_true(block_manager_make_writable(&kv.manager, a, 5));
    assert_int_equal(a->num_keyed, 0);
    other_room[5] = 77;
    block_manager_publish(&kv.manager, a, &changed, 8);
    assert_int_equal(a->num_keyed, 2);
    assert_int_equal(block_manager_match(&kv.manager, b, &tokens, 8), 4);
    block_manager_release(&kv.manager, b);
    assert_int_equal(block_manager_match(&kv.manager, b, &changed, 8), 8);
    /* of two owners the writer copies, and the cache keeps the other's */
    assert_true(block_manager_make_writable(&kv.manager, b, 7));
    assert_int_not_equal(a->blocks[1], b->blocks[1]);
    assert_int_equal(block_manager_match(&kv.manager, &kv.tables[2], &changed, 8), 8);
    assert_int_equal(kv.tables[2].blocks[1], a->blocks[1]);
    kv_fixture_finish(&kv);
}

static void test_who_would_compute_the_same_next(void **state) {
    struct kv_fixture kv;
    int32_t room[3][12];
    struct token_view tokens = kv_tokens(1, room[0], 12), twin = kv_tokens(1, room[1], 12),
                      late = kv_tokens(1, room[2], 12);
    kv_fixture_init(&kv, 16, 0);
    struct block_table *a = &kv.tables[0], *b = &kv.tables[1], *c = &kv.tables[2];
    room[2][6] = 77;
    assert_true(block_manager_same_next(&kv.manager, a, &tokens, b, &twin, a->num_blocks));
    assert_true(block_manager_same_next(&kv.manager, a, &tokens, c, &late, a->num_blocks));
    for (int i = 0; i < 3; i++)
        assert_true(block_manager_grow(&kv.manager, &kv.tables[i]));
    assert_true(block_manager_same_next(&kv.manager, a, &tokens, b, &twin, a->num_blocks));
    assert_false(block_manager_same_next(&kv.manager, a, &tokens, c, &late, a->num_blocks));
    for (int i = 0; i < 3; i++)
        assert_true(block_manager_grow(&kv.manager, &kv.tables[i]));
    assert_true(block_manager_same_next(&kv.manager, a, &tokens, b, &twin, a->num_blocks));
    assert_false(block_manager_same_next(&kv.manager, a, &tokens, c, &late,
                                         a->num_blocks)); /* another history */
    kv.manager.config.caching = false;
    assert_false(block_manager_same_next(&kv.manager, a, &tokens, b, &twin, a->num_blocks));
    kv_fixture_finish(&kv);
}

static void note_privacy(void *context, const struct stored_block *block) {
    char *out = context;
    out[strlen(out)] = block->is_private ? 'p' : block->is_first ? 'f' : 'n';
}

static void note_nothing(void *context) {
}

/* Published by a manager of that many tenants under that salt: a block for each letter. */
static void assert_privacy(int32_t num_tenants, const char *salt, const char *expected) {
    char told[8] = "";
    const struct serving_limits limits = {.num_blocks = 4, .block_size = KV_BLOCK_SIZE};
    const struct kv_event_sink events = {
        .stored = note_privacy, .cleared = note_nothing, .context = told};
    struct block_manager_config config = {
        .limits = &limits, .num_tenants = num_tenants, .caching = true, .events = &events};
    struct block_table table;
    struct block_manager manager;
    int32_t room[8];
    const struct token_view tokens = kv_tokens(1, room, 8);
    memset(config.secret.bytes, 5, sizeof(config.secret.bytes));
    const struct block_key root = block_key_root(&config.secret, 0, salt, strlen(salt));
    assert_int_equal(block_manager_init(&manager, &config), 0);
    assert_int_equal(block_table_init(&table, 4, 1, 0, &root), 0);
    assert_true(block_manager_grow(&manager, &table) && block_manager_grow(&manager, &table));
    block_manager_publish(&manager, &table, &tokens, 8);
    assert_string_equal(told, expected);
    block_manager_release(&manager, &table);
    block_manager_finish(&manager);
    block_table_finish(&table);
}

static void test_what_not_all_prompts_find_is_told_apart(void **state) {
    assert_privacy(1, "", "fn");
    assert_privacy(1, "salt", "pp");
    assert_privacy(2, "", "pp");
}

static void test_without_caching_nothing_is_found(void **state) {
    const struct serving_limits limits = {.num_blocks = 4, .num_host_blocks = 4, .block_size = 4};
    struct block_manager_config config = {.limits = &limits, .num_tenants = 1};
    struct kv_fixture kv;
    int32_t room[8];
    struct token_view tokens = kv_tokens(1, room, 8);
    kv_fixture_init(&kv, 1, 0);
    block_manager_finish(&kv.manager);
    assert_int_equal(block_manager_init(&kv.manager, &config), 0);
    struct block_table *a = &kv.tables[0], *b = &kv.tables[1];
    kv_compute(&kv, a, &tokens, 8);
    assert_int_equal(block_manager_match(&kv.manager, b, &tokens, 8), 0);
    assert_int_equal(a->num_keyed, 0);
    assert_true(block_manager_make_writable(&kv.manager, a, 7));
    assert_true(block_manager_swap_out(&kv.manager, &a, 1));
    assert_true(block_manager_swap_in(&kv.manager, &a, 1));
    kv_fixture_finish(&kv);
}

/* --- swapping --- */

static void test_a_group_goes_out_and_comes_back(void **state) {
    struct kv_fixture kv;
    int32_t room[8];
    struct token_view tokens = kv_tokens(1, room, 8);
    kv_fixture_init(&kv, 3, 3);
    kv.manager.config.caching = false;
    struct block_table *group[] = {&kv.tables[0], &kv.tables[1]};
    kv_compute(&kv, group[0], &tokens, 6);
    block_manager_fork(&kv.manager, group[0], group[1], 6);
    assert_true(block_manager_make_writable(&kv.manager, group[1], 6));
    kv_run_step(&kv.manager);

    assert_true(block_manager_swap_out(&kv.manager, group, 2));
    assert_true(group[0]->on_host && group[1]->on_host);
    assert_moves(&kv.manager.swap_out, 3, (int32_t[]){1, 0, 0, 1, 2, 2});
    assert_int_equal(group[0]->blocks[0], group[1]->blocks[0]);
    assert_int_equal(kv.manager.pool.num_used, 0);
    assert_int_equal(kv.manager.host.num_used, 3);
    assert_int_equal(block_manager_count_distinct(&kv.manager, group, 2), 3);
    kv_run_step(&kv.manager);

    assert_true(block_manager_swap_in(&kv.manager, group, 2));
    assert_int_equal(kv.manager.swap_in.count, 3);
    assert_int_equal(group[0]->blocks[0], group[1]->blocks[0]);
    assert_int_not_equal(group[0]->blocks[1], group[1]->blocks[1]);
    assert_int_equal(kv.manager.pool.num_used, 3);
    assert_int_equal(kv.manager.host.num_used, 3); /* until the step has run */
    kv_run_step(&kv.manager);
    assert_int_equal(kv.manager.host.num_used, 0);
    assert_int_equal(kv.manager.num_swapped_out_blocks, 3);
    assert_int_equal(kv.manager.num_swapped_in_blocks, 3);
    kv_fixture_finish(&kv);
}

static void test_all_or_nothing_is_moved(void **state) {
    struct kv_fixture kv;
    int32_t room[12], other_room[12];
    struct token_view tokens = kv_tokens(1, room, 12), other = kv_tokens(2, other_room, 12);
    kv_fixture_init(&kv, 3, 2);
    struct block_table *a = &kv.tables[0], *b = &kv.tables[1];
    kv_compute(&kv, a, &tokens, 12);
    assert_false(block_manager_swap_out(&kv.manager, &a, 1));
    assert_false(a->on_host);
    assert_int_equal(kv.manager.swap_out.count, 0);
    assert_int_equal(kv.manager.host.num_used, 0);
    block_manager_release(&kv.manager, a);

    kv_compute(&kv, a, &tokens, 8);
    assert_true(block_manager_swap_out(&kv.manager, &a, 1));
    kv_run_step(&kv.manager);
    kv_compute(&kv, b, &other, 8);
    assert_false(block_manager_swap_in(&kv.manager, &a, 1));
    assert_true(a->on_host);
    assert_int_equal(kv.manager.swap_in.count, 0);
    assert_int_equal(kv.manager.pool.num_used, 2);
    kv_fixture_finish(&kv);
}

static void test_blocks_still_in_the_cache_come_in_without_a_move(void **state) {
    struct kv_fixture kv;
    int32_t room[12], other_room[16];
    struct token_view tokens = kv_tokens(1, room, 12), other = kv_tokens(2, other_room, 16);
    kv_fixture_init(&kv, 5, 5);
    struct block_table *a = &kv.tables[0], *b = &kv.tables[1], *c = &kv.tables[2];
    kv_compute(&kv, a, &tokens, 10);
    assert_int_equal(block_manager_match(&kv.manager, b, &tokens, 4), 4); /* keeps the first */
    int32_t first = a->blocks[0];
    assert_true(block_manager_swap_out(&kv.manager, &a, 1));
    kv_run_step(&kv.manager);
    kv_compute(&kv, c, &other, 16); /* takes the second's place */
    block_manager_release(&kv.manager, c);
    assert_true(block_manager_swap_in(&kv.manager, &a, 1));
    assert_int_equal(a->blocks[0], first);
    assert_int_equal(references(&kv, first), 2);
    assert_int_equal(kv.manager.swap_in.count, 2);
    kv_run_step(&kv.manager);
    /* the others are known again once they are published */
    assert_int_equal(a->num_keyed, 0);
    assert_int_equal(block_manager_match(&kv.manager, c, &tokens, 12), 4);
    block_manager_release(&kv.manager, c);
    block_manager_publish(&kv.manager, a, &tokens, 10);
    assert_int_equal(block_manager_match(&kv.manager, c, &tokens, 12), 8);
    kv_fixture_finish(&kv);
}

static void test_free_blocks_in_the_cache_are_taken_before_any_is_reused(void **state) {
    struct kv_fixture kv;
    int32_t room[12];
    struct token_view tokens = kv_tokens(1, room, 12);
    kv_fixture_init(&kv, 3, 3);
    struct block_table *a = &kv.tables[0];
    kv_compute(&kv, a, &tokens, 10);
    assert_true(block_manager_swap_out(&kv.manager, &a, 1));
    kv_run_step(&kv.manager);
    assert_true(block_manager_swap_in(&kv.manager, &a, 1));
    assert_int_equal(kv.manager.swap_in.count, 1); /* the one that is not full */
    assert_int_equal(a->num_keyed, 2);
    assert_int_equal(kv.manager.pool.num_used, 3);
    kv_fixture_finish(&kv);
}

/* Holds for any table of the group. */
static void test_no_block_of_the_group_is_reused_for_another_of_it(void **state) {
    struct kv_fixture kv;
    int32_t room[3][8];
    struct token_view tokens = kv_tokens(1, room[0], 8), mine = kv_tokens(2, room[1], 8),
                      other = kv_tokens(3, room[2], 8);
    kv_fixture_init(&kv, 3, 3);
    struct block_table *group[] = {&kv.tables[0], &kv.tables[1]}, *c = &kv.tables[2];
    kv_compute(&kv, group[0], &tokens, 3);
    kv_compute(&kv, group[1], &mine, 4);
    kv_compute(&kv, c, &other, 4);
    int32_t kept = group[1]->blocks[0];
    assert_true(block_manager_swap_out(&kv.manager, group, 2));
    kv_run_step(&kv.manager);
    assert_true(block_manager_grow(&kv.manager, &kv.tables[3])); /* what was not full */
    block_manager_release(&kv.manager, c);                       /* free later than the group's */
    assert_true(block_manager_swap_in(&kv.manager, group, 2));
    assert_int_equal(group[1]->blocks[0], kept);
    assert_int_equal(kv.manager.swap_in.count, 1);
    kv_fixture_finish(&kv);
}

static void test_what_was_computed_and_not_published_is_published_later(void **state) {
    struct kv_fixture kv;
    int32_t room[12];
    struct token_view tokens = kv_tokens(1, room, 12);
    kv_fixture_init(&kv, 8, 0);
    struct block_table *a = &kv.tables[0];
    assert_true(block_manager_grow(&kv.manager, a));
    assert_int_equal(block_manager_match(&kv.manager, a, &tokens, 12), 0); /* needs its key */
    assert_int_equal(a->num_keyed, 1);
    kv_compute(&kv, a, &tokens, 8);
    assert_int_equal(block_manager_match(&kv.manager, &kv.tables[1], &tokens, 12), 8);
    kv_fixture_finish(&kv);
}

static void test_a_prefix_that_went_out_outlives_its_continuations(void **state) {
    struct kv_fixture kv;
    int32_t room[16];
    struct token_view tokens = kv_tokens(1, room, 16);
    kv_fixture_init(&kv, 4, 4);
    struct block_table *a = &kv.tables[0];
    kv_compute(&kv, a, &tokens, 16);
    assert_true(block_manager_swap_out(&kv.manager, &a, 1));
    assert_true(block_manager_grow(&kv.manager, &kv.tables[1]));
    assert_int_equal(block_manager_match(&kv.manager, &kv.tables[2], &tokens, 16), 12);
    kv_fixture_finish(&kv);
}

static void test_a_block_to_be_copied_goes_out_as_its_source(void **state) {
    struct kv_fixture kv;
    int32_t room[8];
    struct token_view tokens = kv_tokens(1, room, 8);
    kv_fixture_init(&kv, 4, 4);
    struct block_table *a = &kv.tables[0], *b = &kv.tables[1];
    kv_compute(&kv, a, &tokens, 6);
    block_manager_fork(&kv.manager, a, b, 6);
    int32_t source = a->blocks[1];
    assert_true(block_manager_make_writable(&kv.manager, b, 6));
    assert_true(block_manager_swap_out(&kv.manager, &b, 1));
    assert_int_equal(kv.manager.copies.count, 0);
    assert_int_equal(kv.manager.pool.blocks[source].pins, 0);
    assert_moves(&kv.manager.swap_out, 2,
                 (int32_t[]){source, b->blocks[1], a->blocks[0], b->blocks[0]});
    assert_int_equal(kv.manager.pool.num_used, 2);
    kv_fixture_finish(&kv);
}

static void test_a_copy_and_its_source_are_one_on_the_host(void **state) {
    struct kv_fixture kv;
    int32_t room[8];
    struct token_view tokens = kv_tokens(1, room, 8);
    kv_fixture_init(&kv, 3, 2);
    struct block_table *group[] = {&kv.tables[0], &kv.tables[1]};
    kv_compute(&kv, group[0], &tokens, 6);
    block_manager_fork(&kv.manager, group[0], group[1], 6);
    assert_true(block_manager_make_writable(&kv.manager, group[1], 6));
    assert_true(block_manager_swap_out(&kv.manager, group, 2));
    assert_int_equal(group[0]->blocks[1], group[1]->blocks[1]);
    assert_int_equal(kv.manager.pool.num_used, 0);
    kv_fixture_finish(&kv);
}

static void test_host_blocks_on_their_way_in_are_not_overwritten(void **state) {
    struct kv_fixture kv;
    int32_t room[8], other_room[8];
    struct token_view tokens = kv_tokens(1, room, 8), other = kv_tokens(2, other_room, 8);
    kv_fixture_init(&kv, 2, 1);
    struct block_table *a = &kv.tables[0], *b = &kv.tables[1];
    kv_compute(&kv, a, &tokens, 3);
    assert_true(block_manager_swap_out(&kv.manager, &a, 1));
    kv_compute(&kv, b, &other, 3);
    kv_run_step(&kv.manager);
    assert_true(block_manager_swap_in(&kv.manager, &a, 1));
    assert_false(block_manager_swap_out(&kv.manager, &b, 1));
    kv_run_step(&kv.manager);
    assert_true(block_manager_swap_out(&kv.manager, &b, 1));
    kv_fixture_finish(&kv);
}

static void test_a_release_takes_its_swaps_back(void **state) {
    struct kv_fixture kv;
    int32_t room[8];
    struct token_view tokens = kv_tokens(1, room, 8);
    kv_fixture_init(&kv, 4, 4);
    struct block_table *group[] = {&kv.tables[0], &kv.tables[1]};
    kv_compute(&kv, group[0], &tokens, 6);
    block_manager_fork(&kv.manager, group[0], group[1], 6);
    assert_true(block_manager_swap_out(&kv.manager, group, 2));
    block_manager_release(&kv.manager, group[0]);
    assert_int_equal(kv.manager.swap_out.count, 2);
    block_manager_release(&kv.manager, group[1]);
    assert_int_equal(kv.manager.swap_out.count, 0);
    assert_int_equal(kv.manager.host.num_used, 0);
    assert_false(group[0]->on_host);
    kv_fixture_finish(&kv);
}

/* Out, in and copied in one step, then given up: each move falls with the one after it. */
static void test_a_release_takes_back_moves_that_follow_each_other(void **state) {
    struct kv_fixture kv;
    int32_t room[8];
    struct token_view tokens = kv_tokens(1, room, 8);
    kv_fixture_init(&kv, 6, 4);
    struct block_table *group[] = {&kv.tables[0], &kv.tables[1]};
    kv_compute(&kv, group[0], &tokens, 3);
    block_manager_fork(&kv.manager, group[0], group[1], 3);
    assert_true(block_manager_swap_out(&kv.manager, group, 2));
    assert_true(block_manager_swap_in(&kv.manager, group, 2));
    assert_true(block_manager_make_writable(&kv.manager, group[1], 3));
    assert_int_equal(kv.manager.swap_out.count, 1);
    assert_int_equal(kv.manager.swap_in.count, 1);
    assert_moves(&kv.manager.copies, 1, (int32_t[]){group[0]->blocks[0], group[1]->blocks[0]});
    block_manager_release(&kv.manager, group[0]);
    assert_int_equal(kv.manager.swap_in.count, 1); /* the copy is made from it */
    block_manager_release(&kv.manager, group[1]);
    assert_int_equal(kv.manager.copies.count, 0);
    assert_int_equal(kv.manager.swap_in.count, 0);
    assert_int_equal(kv.manager.swap_out.count, 0);
    assert_int_equal(kv.manager.pool.num_used, 0);
    assert_int_equal(kv.manager.host.num_used, 0);
    kv_fixture_finish(&kv);
}

/* What a move was to bring into a block is not found there if the move is not made. */
static void test_content_that_never_arrives_is_forgotten(void **state) {
    struct kv_fixture kv;
    int32_t room[8], other_room[12];
    struct token_view tokens = kv_tokens(1, room, 8), other = kv_tokens(2, other_room, 12);
    kv_fixture_init(&kv, 3, 3);
    struct block_table *a = &kv.tables[0], *b = &kv.tables[1];
    kv_compute(&kv, a, &tokens, 4);
    assert_true(block_manager_swap_out(&kv.manager, &a, 1));
    kv_run_step(&kv.manager);
    kv_compute(&kv, b, &other, 12);
    block_manager_release(&kv.manager, b);
    assert_true(block_manager_swap_in(&kv.manager, &a, 1));
    block_manager_publish(&kv.manager, a, &tokens, 4);
    block_manager_release(&kv.manager, a);
    assert_int_equal(kv.manager.swap_in.count, 0);
    assert_int_equal(block_manager_match(&kv.manager, a, &tokens, 4), 0);
    kv_fixture_finish(&kv);
}

/* A block that a step in flight uses is not handed out again before that step was collected, nor
 * is the source of a copy that it makes; one that no step in flight uses is at once. */
static void test_steps_in_flight_defer_blocks(void **state) {
    struct kv_fixture kv;
    kv_fixture_init(&kv, 4, 0);
    struct block_table *a = &kv.tables[0], *b = &kv.tables[1], *c = &kv.tables[2];
    assert_true(block_manager_grow(&kv.manager, a));
    assert_true(block_manager_grow(&kv.manager, b));
    block_manager_submit(&kv.manager, &a, 1);
    block_manager_submit(&kv.manager, &a, 1);
    int32_t used = a->blocks[0];
    block_manager_release(&kv.manager, b);
    assert_int_equal(block_pool_num_free(&kv.manager.pool), 3);
    block_manager_release(&kv.manager, a);
    assert_int_equal(block_pool_num_free(&kv.manager.pool), 3);
    block_manager_collect(&kv.manager);
    assert_int_equal(block_pool_num_free(&kv.manager.pool), 3); /* the second step uses it too */
    while (block_manager_grow(&kv.manager, c))
        assert_int_not_equal(c->blocks[c->num_blocks - 1], used);
    block_manager_release(&kv.manager, c);
    block_manager_collect(&kv.manager);
    assert_int_equal(block_pool_num_free(&kv.manager.pool), 4);

    assert_true(block_manager_grow(&kv.manager, a));
    block_manager_fork(&kv.manager, a, b, 2);
    assert_true(block_manager_make_writable(&kv.manager, b, 2));
    block_manager_submit(&kv.manager, &b, 1); /* reads the block of a, which it does not compute */
    block_manager_release(&kv.manager, a);
    assert_int_equal(block_pool_num_free(&kv.manager.pool), 2);
    block_manager_collect(&kv.manager);
    assert_int_equal(block_pool_num_free(&kv.manager.pool), 3);
    kv_fixture_finish(&kv);
}

/* It reads the source of a copy that lost its owner while it was planned. */
static void test_a_step_in_flight_holds_the_sources_of_its_copies(void **state) {
    struct kv_fixture kv;
    kv_fixture_init(&kv, 4, 0);
    struct block_table *a = &kv.tables[0], *b = &kv.tables[1];
    assert_true(block_manager_grow(&kv.manager, a));
    block_manager_fork(&kv.manager, a, b, 2);
    assert_true(block_manager_make_writable(&kv.manager, b, 2));
    block_manager_release(&kv.manager, a);
    block_manager_submit(&kv.manager, &b, 1);
    assert_int_equal(block_pool_num_free(&kv.manager.pool), 2);
    block_manager_collect(&kv.manager);
    assert_int_equal(block_pool_num_free(&kv.manager.pool), 3);
    kv_fixture_finish(&kv);
}

/* Content that a deferred block keeps is found again, and it then stays with who found it. */
static void test_a_deferred_block_is_found(void **state) {
    struct kv_fixture kv;
    int32_t room[8];
    kv_fixture_init(&kv, 4, 0);
    struct block_table *a = &kv.tables[0], *b = &kv.tables[1];
    const struct token_view tokens = kv_tokens(1, room, 8);
    kv_compute(&kv, a, &tokens, 8);
    block_manager_submit(&kv.manager, &a, 1);
    int32_t first = a->blocks[0];
    block_manager_release(&kv.manager, a);
    assert_int_equal(block_pool_num_free(&kv.manager.pool), 2);
    assert_int_equal(block_manager_match(&kv.manager, b, &tokens, 4), 4);
    assert_int_equal(b->blocks[0], first);
    block_manager_collect(&kv.manager);
    assert_int_equal(block_pool_num_free(&kv.manager.pool), 3);
    kv_fixture_finish(&kv);
}

/* --- what a draft model has computed --- */

static int32_t num_drafted(const struct kv_fixture *kv, int table) {
    return block_manager_num_drafted(&kv->manager, &kv->tables[table], 100);
}

static void test_drafted_tokens_are_counted_from_the_first(void **state) {
    struct kv_fixture kv;
    int32_t room[16];
    struct token_view tokens = kv_tokens(1, room, 16);
    kv_fixture_init(&kv, 8, 0);
    struct block_table *table = &kv.tables[0];
    kv_compute(&kv, table, &tokens, 14);
    assert_int_equal(num_drafted(&kv, 0), 0);
    block_manager_add_drafted(&kv.manager, table, 0, 6);
    assert_int_equal(num_drafted(&kv, 0), 6);
    block_manager_add_drafted(&kv.manager, table, 6, 14);
    assert_int_equal(num_drafted(&kv, 0), 14);
    assert_int_equal(block_manager_num_drafted(&kv.manager, table, 9), 9);
    block_manager_trim(&kv.manager, table, 13); /* drafts that were not accepted */
    assert_int_equal(num_drafted(&kv, 0), 13);
    assert_true(block_manager_make_writable(&kv.manager, table, 6)); /* computed again from there */
    assert_int_equal(num_drafted(&kv, 0), 6);
    block_manager_release(&kv.manager, table);
    assert_true(block_manager_grow(&kv.manager, table)); /* another sequence's now */
    assert_int_equal(num_drafted(&kv, 0), 0);
    kv_fixture_finish(&kv);
}

static void test_drafted_tokens_are_shared_copied_and_swapped(void **state) {
    struct kv_fixture kv;
    int32_t room[16];
    struct token_view tokens = kv_tokens(1, room, 16);
    kv_fixture_init(&kv, 8, 8);
    struct block_table *table = &kv.tables[0], *fork = &kv.tables[1], *found = &kv.tables[2];
    kv_compute(&kv, table, &tokens, 11);
    block_manager_add_drafted(&kv.manager, table, 0, 11);
    block_manager_fork(&kv.manager, table, fork, 10);
    assert_true(block_manager_make_writable(&kv.manager, fork, 10));
    assert_int_equal(num_drafted(&kv, 1), 10); /* of the copy; token 10 is another one there */
    assert_int_equal(num_drafted(&kv, 0), 11);
    kv_run_step(&kv.manager);
    assert_true(block_manager_swap_out(&kv.manager, &fork, 1));
    kv_run_step(&kv.manager);
    assert_true(block_manager_swap_in(&kv.manager, &fork, 1));
    kv_run_step(&kv.manager);
    assert_int_equal(num_drafted(&kv, 1), 10);
    assert_int_equal(block_manager_match(&kv.manager, found, &tokens, 11), 8);
    assert_int_equal(num_drafted(&kv, 2), 8); /* in the prefix cache, too */
    kv_fixture_finish(&kv);
}

/* An MTP layer has a token in the place of the one before it: the fork's own token 6 is not that of
 * the table that it was cut from. */
static void test_what_is_drafted_ahead_ends_one_place_earlier(void **state) {
    struct kv_fixture kv;
    int32_t room[16];
    struct token_view tokens = kv_tokens(1, room, 16);
    kv_fixture_init(&kv, 8, 0);
    kv.manager.config.drafts_ahead = true;
    struct block_table *table = &kv.tables[0], *fork = &kv.tables[1];
    kv_compute(&kv, table, &tokens, 7);
    block_manager_add_drafted(&kv.manager, table, 0, 6);
    block_manager_fork(&kv.manager, table, fork, 6);
    assert_true(block_manager_make_writable(&kv.manager, fork, 6));
    assert_int_equal(num_drafted(&kv, 0), 6);
    assert_int_equal(num_drafted(&kv, 1), 5);
    block_manager_trim(&kv.manager, table, 5);
    assert_int_equal(num_drafted(&kv, 0), 4);
    kv_fixture_finish(&kv);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_table_grows_until_no_block_is_left),
        cmocka_unit_test(test_blocks_before_the_window_are_dropped),
        cmocka_unit_test(test_a_table_is_cut_back),
        cmocka_unit_test(test_a_fork_shares_all_blocks_the_last_one_too),
        cmocka_unit_test(test_a_fork_of_fewer_tokens_has_no_keys_beyond_them),
        cmocka_unit_test(test_the_first_writer_copies_and_the_last_owner_does_not),
        cmocka_unit_test(test_a_copy_needs_a_block),
        cmocka_unit_test(test_a_copys_source_is_kept_until_the_step_has_run),
        cmocka_unit_test(test_a_release_takes_its_copies_back),
        cmocka_unit_test(test_a_copy_of_a_copy_of_this_step_is_made_from_the_first_source),
        cmocka_unit_test(test_a_prefix_is_found_up_to_the_limit),
        cmocka_unit_test(test_a_match_never_overfills_a_table),
        cmocka_unit_test(test_a_flushed_cache_finds_nothing_and_tables_keep_their_blocks),
        cmocka_unit_test(test_freed_blocks_are_found_the_prefix_longest),
        cmocka_unit_test(test_caches_of_two_tenants_or_salts_are_apart),
        cmocka_unit_test(test_a_duplicate_is_replaced),
        cmocka_unit_test(test_a_block_that_is_written_to_is_forgotten),
        cmocka_unit_test(test_who_would_compute_the_same_next),
        cmocka_unit_test(test_what_not_all_prompts_find_is_told_apart),
        cmocka_unit_test(test_without_caching_nothing_is_found),
        cmocka_unit_test(test_a_group_goes_out_and_comes_back),
        cmocka_unit_test(test_all_or_nothing_is_moved),
        cmocka_unit_test(test_blocks_still_in_the_cache_come_in_without_a_move),
        cmocka_unit_test(test_free_blocks_in_the_cache_are_taken_before_any_is_reused),
        cmocka_unit_test(test_no_block_of_the_group_is_reused_for_another_of_it),
        cmocka_unit_test(test_what_was_computed_and_not_published_is_published_later),
        cmocka_unit_test(test_a_prefix_that_went_out_outlives_its_continuations),
        cmocka_unit_test(test_a_block_to_be_copied_goes_out_as_its_source),
        cmocka_unit_test(test_a_copy_and_its_source_are_one_on_the_host),
        cmocka_unit_test(test_host_blocks_on_their_way_in_are_not_overwritten),
        cmocka_unit_test(test_a_release_takes_its_swaps_back),
        cmocka_unit_test(test_a_release_takes_back_moves_that_follow_each_other),
        cmocka_unit_test(test_content_that_never_arrives_is_forgotten),
        cmocka_unit_test(test_steps_in_flight_defer_blocks),
        cmocka_unit_test(test_a_step_in_flight_holds_the_sources_of_its_copies),
        cmocka_unit_test(test_a_deferred_block_is_found),
        cmocka_unit_test(test_drafted_tokens_are_counted_from_the_first),
        cmocka_unit_test(test_drafted_tokens_are_shared_copied_and_swapped),
        cmocka_unit_test(test_what_is_drafted_ahead_ends_one_place_earlier),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
