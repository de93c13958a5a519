/* A hash that distinguishes contents: XXH3 of 128 bits (xxhash.com), as fast as memory. Accidental
 * collisions do not occur; deliberate ones are possible. */
#ifndef QUIRE_MODELS_FILES_CONTENT_HASH_H
#define QUIRE_MODELS_FILES_CONTENT_HASH_H

#include <stddef.h>
#include <stdint.h>

#define CONTENT_HASH_BYTES 16

struct content_hash;

struct content_hash *content_hash_create(void);       /* NULL when memory is short */
void content_hash_destroy(struct content_hash *hash); /* accepts NULL */
void content_hash_add(struct content_hash *hash, const void *data, size_t bytes);
/* Adds the data preceded by its length, so that what follows cannot be mistaken for a part of
 * it. */
void content_hash_add_sized(struct content_hash *hash, const void *data, size_t bytes);
/* Writes the hash of all data so far; more may be added. */
void content_hash_digest(const struct content_hash *hash, uint8_t out[static CONTENT_HASH_BYTES]);
/* Writes the hash of these bytes only. */
void content_hash_of(const void *data, size_t bytes, uint8_t out[static CONTENT_HASH_BYTES]);
/* Returns a hash of 64 bits (XXH3's), for checksums. */
uint64_t content_hash_short(const void *data, size_t bytes);

#endif
