#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "tests/unit/engine/kv/kv_fixture.h"

void kv_fixture_init(struct kv_fixture *kv, int32_t num_blocks, int32_t num_host_blocks) {
    kv->limits = (struct serving_limits){
        .num_blocks = num_blocks, .num_host_blocks = num_host_blocks, .block_size = KV_BLOCK_SIZE};
    struct block_manager_config config = {.limits = &kv->limits, .num_tenants = 2, .caching = true};
    for (int i = 0; i < BLOCK_KEY_SECRET_BYTES; i++)
        config.secret.bytes[i] = (unsigned char)(37 * i + i * i);
    struct block_key root = block_key_root(&config.secret, 0, NULL, 0);
    assert_int_equal(block_manager_init(&kv->manager, &config), 0);
    for (int i = 0; i < KV_NUM_TABLES; i++)
        assert_int_equal(block_table_init(&kv->tables[i], KV_MAX_BLOCKS, 1, 0, &root), 0);
}

void kv_fixture_finish(struct kv_fixture *kv) {
    for (int i = 0; i < KV_NUM_TABLES; i++) {
        block_manager_release(&kv->manager, &kv->tables[i]);
        block_table_finish(&kv->tables[i]);
    }
    kv_run_step(&kv->manager);
    assert_int_equal(kv->manager.pool.num_used, 0);
    assert_int_equal(kv->manager.host.num_used, 0);
    block_manager_finish(&kv->manager);
}

void kv_run_step(struct block_manager *manager) {
    block_manager_submit(manager, NULL, 0);
    block_manager_collect(manager);
}

struct token_view kv_tokens(int32_t history, int32_t *room, int32_t count) {
    for (int32_t i = 0; i < count; i++)
        room[i] = 1000 * history + i;
    /* some of them were generated */
    return (struct token_view){room, count / 2, room + count / 2, count - count / 2};
}

void kv_compute(struct kv_fixture *kv, struct block_table *table, const struct token_view *tokens,
                int32_t num_tokens) {
    while (table->num_blocks * KV_BLOCK_SIZE < num_tokens)
        assert_true(block_manager_grow(&kv->manager, table));
    block_manager_publish(&kv->manager, table, tokens, num_tokens);
}
