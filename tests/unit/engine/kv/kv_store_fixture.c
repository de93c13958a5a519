#include "tests/unit/engine/kv/kv_store_fixture.h"

#include <unistd.h>

static void ignore_wake(void *context) {
    (void)context;
}

void store_set_up(struct store_fixture *fixture, int32_t num_slots) {
    memset(fixture, 0, sizeof(*fixture));
    temporary_folder_make(&fixture->folder);
    snprintf(fixture->directory, sizeof(fixture->directory), "%s/store", fixture->folder.path);
    fixture->config = (struct kv_store_config){.directory = fixture->directory,
                                               .max_bytes = 4096 + num_slots * STORE_SLOT_COST,
                                               .identity = {1, 2, 3},
                                               .block_bytes = STORE_BLOCK_BYTES,
                                               .block_size = STORE_BLOCK_SIZE,
                                               .wake = ignore_wake};
}

int store_open(struct store_fixture *fixture) {
    return kv_store_open(&fixture->config, &fixture->store, &fixture->err);
}

void store_close(struct store_fixture *fixture) {
    kv_store_close(fixture->store);
    fixture->store = NULL;
}

void store_tear_down(struct store_fixture *fixture) {
    store_close(fixture);
    temporary_folder_remove(&fixture->folder);
}

const char *store_path(struct store_fixture *fixture, const char *name) {
    char inside[64];
    snprintf(inside, sizeof(inside), "store/%s", name);
    return temporary_file(&fixture->folder, inside);
}

void store_make_chain(const struct kv_store *store, int32_t history, int32_t group,
                      struct store_block *blocks, int32_t count) {
    const struct block_key_secret *secret = kv_store_secret(store);
    struct block_key previous = block_key_root(secret, 0, NULL, 0);
    for (int32_t i = 0; i < count; i++) {
        for (int32_t token = 0; token < STORE_BLOCK_SIZE; token++)
            blocks[i].tokens[token] = history * 1000 + i * STORE_BLOCK_SIZE + token;
        blocks[i].content = (struct block_content){
            .key = block_key_next(secret, &previous, blocks[i].tokens, STORE_BLOCK_SIZE),
            .group = group,
            .previous = previous,
            .is_first = i == 0,
            .tokens = blocks[i].tokens};
        previous = blocks[i].content.key;
    }
}

void store_fill(const struct store_block *block, unsigned char *data) {
    uint64_t state = ((uint64_t)(uint32_t)block->tokens[0] << 8) + (uint64_t)block->content.group;
    for (size_t i = 0; i < STORE_BLOCK_BYTES; i++) {
        state = state * UINT64_C(6364136223846793005) + 1442695040888963407;
        data[i] = (unsigned char)(state >> 56);
    }
}

struct kv_store_done store_wait(struct kv_store *store) {
    struct kv_store_done done;
    while (!kv_store_next_done(store, &done))
        usleep(20);
    return done;
}

bool store_put(struct kv_store *store, const struct store_block *block) {
    unsigned char data[STORE_BLOCK_BYTES];
    const struct kv_store_part parts[] = {{data, 1000}, {data + 1000, STORE_BLOCK_BYTES - 1000}};
    store_fill(block, data);
    return kv_store_write(store, &block->content, block->tokens[0], parts, 2, 7) &&
           store_wait(store).is_ok;
}

enum store_result store_get(struct kv_store *store, const struct store_block *block) {
    unsigned char data[STORE_BLOCK_BYTES], expected[STORE_BLOCK_BYTES];
    const struct kv_store_part parts[] = {{data, 5000}, {data + 5000, STORE_BLOCK_BYTES - 5000}};
    memset(data, 0, sizeof(data));
    if (!kv_store_read(store, &block->content, parts, 2, 8))
        return STORE_MISS;
    struct kv_store_done done = store_wait(store);
    if (!done.is_ok)
        return STORE_MISS;
    store_fill(block, expected);
    bool right = done.is_read && done.tag == 8 && done.num_drafted == block->tokens[0] &&
                 memcmp(data, expected, sizeof(data)) == 0;
    return right ? STORE_RIGHT : STORE_WRONG;
}
