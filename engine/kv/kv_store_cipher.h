/* Seals what the store of KV blocks writes to its files, so that damaged or foreign bytes are
 * noticed: with a checksum under the store's secret (XXH3 of 128 bits), or, if there is a key file,
 * encrypted with AES-256-GCM (GnuTLS). */
#ifndef QUIRE_ENGINE_KV_KV_STORE_CIPHER_H
#define QUIRE_ENGINE_KV_KV_STORE_CIPHER_H

#include "config/base/error.h"
#include "engine/kv/block_key.h"

#define KV_STORE_KEY_BYTES 32

struct kv_store_cipher;

struct kv_store_key {
    unsigned char bytes[KV_STORE_KEY_BYTES];
};

/* Stored next to what it belongs to. */
struct kv_store_seal {
    unsigned char nonce[12];
    unsigned char unused[4];
    unsigned char tag[16]; /* or the checksum */
};

/* Reads a key file: 32 bytes, or 64 hexadecimal digits and perhaps a line end. Refuses one that
 * others than its owner may read or change. */
int kv_store_key_read(const char *path, struct kv_store_key *out, struct error *err);
/* Derives the key of one store (HKDF), so that stores may share a key file: random nonces last for
 * 2^32 blocks of each. */
int kv_store_key_derive(const struct kv_store_key *key, const struct block_key_secret *secret,
                        struct kv_store_key *out, struct error *err);

/* Copies key and secret. With key NULL it checks only, under the secret; otherwise the secret is
 * not used and may be NULL. The result is for one thread at a time. */
int kv_store_cipher_create(const struct kv_store_key *key, const struct block_key_secret *secret,
                           struct kv_store_cipher **out, struct error *err);
/* Accepts NULL. */
void kv_store_cipher_destroy(struct kv_store_cipher *cipher);

/* Seals the data in place, and what it is about, which is not stored with it. The two are bound
 * together. `bytes` may be 0. Returns -1 when that is impossible. */
int kv_store_cipher_seal(struct kv_store_cipher *cipher, const void *about, size_t about_bytes,
                         void *data, size_t bytes, struct kv_store_seal *out);
/* Decrypts in place. Returns whether both are what was sealed; if not, the data is undefined. */
bool kv_store_cipher_open(struct kv_store_cipher *cipher, const void *about, size_t about_bytes,
                          void *data, size_t bytes, const struct kv_store_seal *seal);

#endif
