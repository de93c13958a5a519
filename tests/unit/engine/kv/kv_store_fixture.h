/* A store of KV blocks in a folder of its own, and blocks whose bytes follow from their content, so
 * that a wrong byte is seen. */
#ifndef QUIRE_TESTS_UNIT_ENGINE_KV_KV_STORE_FIXTURE_H
#define QUIRE_TESTS_UNIT_ENGINE_KV_KV_STORE_FIXTURE_H

#include "engine/kv/kv_store.h"
#include "tests/unit/temporary_files.h"

#define STORE_BLOCK_SIZE 4
#define STORE_BLOCK_BYTES 6000 /* not a multiple of a page */
#define STORE_SLOT_BYTES 8192
#define STORE_RECORD_BYTES 144
#define STORE_SLOT_COST (STORE_SLOT_BYTES + STORE_RECORD_BYTES + 8) /* with its last use */

struct store_block {
    struct block_content content;
    int32_t tokens[STORE_BLOCK_SIZE];
};

struct store_fixture {
    struct temporary_folder folder;
    char directory[300];
    struct kv_store_config config;
    struct kv_store *store;
    struct error err;
};

enum store_result { STORE_MISS, STORE_RIGHT, STORE_WRONG };

/* Makes the folder, and a configuration for that many blocks. */
void store_set_up(struct store_fixture *fixture, int32_t num_slots);
/* Closes the store if it is open, and removes the folder. */
void store_tear_down(struct store_fixture *fixture);
/* Returns what kv_store_open does; without a store the fixture's one is NULL. */
int store_open(struct store_fixture *fixture);
void store_close(struct store_fixture *fixture);
/* A file of the store. */
const char *store_path(struct store_fixture *fixture, const char *name);

/* Makes blocks that follow each other, of a history with that number. */
void store_make_chain(const struct kv_store *store, int32_t history, int32_t group,
                      struct store_block *blocks, int32_t count);
/* Writes a block's bytes. */
void store_fill(const struct store_block *block, unsigned char *data);
/* Waits for a job to be reported. */
struct kv_store_done store_wait(struct kv_store *store);
/* Writes a block and waits; returns whether it was accepted and written. */
bool store_put(struct kv_store *store, const struct store_block *block);
/* Reads a block and waits. */
enum store_result store_get(struct kv_store *store, const struct store_block *block);

#endif
