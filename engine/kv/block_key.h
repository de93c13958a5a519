/* Identifies the content of a full block: a hash over everything its keys and values depend on,
 * that is, all tokens up to the block's end, the adapter that computed them and the owner of the
 * cache. The hashes are chained: a block's key is the hash of its predecessor's key and its own
 * tokens, so a run of equal keys is an equal history.
 *
 * XXH3 of 128 bits with a secret (xxhash.com): without the secret nobody can search for two
 * histories with the same key. It is not a cryptographic hash, so prefix_cache.h also compares
 * tenant, predecessor and tokens. */
#ifndef QUIRE_ENGINE_KV_BLOCK_KEY_H
#define QUIRE_ENGINE_KV_BLOCK_KEY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BLOCK_KEY_SECRET_BYTES 192
#define BLOCK_KEY_MAX_TOKENS 1024 /* of a block */

struct block_key {
    uint64_t low, high;
};

/* Names an adapter to those who are told of its blocks; its digest is in their keys. */
struct block_adapter {
    int32_t id;       /* 0: none */
    const char *name; /* NULL: none */
};

struct block_key_secret {
    unsigned char bytes[BLOCK_KEY_SECRET_BYTES];
};

/* Fills the secret with random numbers from the system. Returns -1 when they cannot be read. */
int block_key_secret_create(struct block_key_secret *out);

/* Returns the key before the first block of a history. Tenants are numbered from 0; `salt`, any
 * bytes, divides the cache further within a tenant. */
struct block_key block_key_root(const struct block_key_secret *secret, int32_t tenant,
                                const void *salt, size_t salt_bytes);
/* Returns that key for histories of which nobody else finds any: an adapter of this digest computes
 * them, or an API key of this hash owns them. `root`: without. */
struct block_key block_key_root_of(const struct block_key_secret *secret,
                                   const struct block_key *root, const void *digest,
                                   size_t digest_bytes);
/* Returns the key of the block that follows `previous`; 1 <= num_tokens <= BLOCK_KEY_MAX_TOKENS. */
struct block_key block_key_next(const struct block_key_secret *secret,
                                const struct block_key *previous, const int32_t *tokens,
                                int32_t num_tokens);
bool block_key_equal(const struct block_key *a, const struct block_key *b);

#endif
