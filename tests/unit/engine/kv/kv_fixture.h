/* A small block manager and tables for its tests: blocks of 4 tokens. */
#ifndef QUIRE_TESTS_UNIT_ENGINE_KV_KV_FIXTURE_H
#define QUIRE_TESTS_UNIT_ENGINE_KV_KV_FIXTURE_H

#include "engine/kv/block_manager.h"

#define KV_BLOCK_SIZE 4
#define KV_MAX_BLOCKS 8 /* of a table */
#define KV_NUM_TABLES 4

struct kv_fixture {
    struct serving_limits limits;
    struct block_manager manager;
    struct block_table tables[KV_NUM_TABLES]; /* all of tenant 0, without salt */
};

/* Block and host block counts; with caching. */
void kv_fixture_init(struct kv_fixture *kv, int32_t num_blocks, int32_t num_host_blocks);
/* Releases every table, and asserts that nothing is held then. */
void kv_fixture_finish(struct kv_fixture *kv);

/* Submits the step with the listed moves, and collects it. */
void kv_run_step(struct block_manager *manager);

/* Tokens 1000 * history, 1000 * history + 1, ... */
struct token_view kv_tokens(int32_t history, int32_t *room, int32_t count);

/* Grows the table until it holds that many tokens, publishes them. */
void kv_compute(struct kv_fixture *kv, struct block_table *table, const struct token_view *tokens,
                int32_t num_tokens);

#endif
