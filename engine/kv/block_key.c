/* Hashes the bytes of the structs below, which have no padding. */
#include "engine/kv/block_key.h"

#include "config/base/check.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>
#include <xxhash.h>

_Static_assert(BLOCK_KEY_SECRET_BYTES >= XXH3_SECRET_SIZE_MIN, "the hash takes this secret");

struct root_content {
    struct block_key salt;
    uint64_t salt_bytes;
    int64_t tenant;
};

struct adapter_content {
    struct block_key root;
    struct block_key digest;
};

struct next_content {
    struct block_key previous;
    int32_t tokens[BLOCK_KEY_MAX_TOKENS];
};

int block_key_secret_create(struct block_key_secret *out) {
    struct block_key_secret secret;
    size_t have = 0;
    while (have < sizeof(secret.bytes)) {
        ssize_t more = getrandom(secret.bytes + have, sizeof(secret.bytes) - have, 0);
        if (more > 0)
            have += (size_t)more;
        else if (more == 0 || errno != EINTR)
            return -1;
    }
    *out = secret;
    return 0;
}

static struct block_key hash_bytes(const struct block_key_secret *secret, const void *data,
                                   size_t bytes) {
    XXH128_hash_t hash = XXH3_128bits_withSecret(data, bytes, secret->bytes, sizeof(secret->bytes));
    return (struct block_key){.low = hash.low64, .high = hash.high64};
}

struct block_key block_key_root(const struct block_key_secret *secret, int32_t tenant,
                                const void *salt, size_t salt_bytes) {
    struct root_content content = {
        .salt = hash_bytes(secret, salt, salt_bytes), .salt_bytes = salt_bytes, .tenant = tenant};
    return hash_bytes(secret, &content, sizeof(content));
}

struct block_key block_key_root_of(const struct block_key_secret *secret,
                                   const struct block_key *root, const void *digest,
                                   size_t digest_bytes) {
    const struct adapter_content content = {.root = *root,
                                            .digest = hash_bytes(secret, digest, digest_bytes)};
    return hash_bytes(secret, &content, sizeof(content));
}

struct block_key block_key_next(const struct block_key_secret *secret,
                                const struct block_key *previous, const int32_t *tokens,
                                int32_t num_tokens) {
    CHECK(num_tokens >= 1 && num_tokens <= BLOCK_KEY_MAX_TOKENS);
    struct next_content content;
    size_t token_bytes = (size_t)num_tokens * sizeof(*tokens);
    content.previous = *previous;
    memcpy(content.tokens, tokens, token_bytes);
    return hash_bytes(secret, &content, offsetof(struct next_content, tokens) + token_bytes);
}

bool block_key_equal(const struct block_key *a, const struct block_key *b) {
    return a->low == b->low && a->high == b->high;
}
