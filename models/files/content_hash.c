#include "models/files/content_hash.h"

#include "config/base/check.h"

#include <string.h>
#include <xxhash.h>

/* A struct content_hash is the library's state. */
static XXH3_state_t *state_of(struct content_hash *hash) {
    return (XXH3_state_t *)hash;
}

struct content_hash *content_hash_create(void) {
    XXH3_state_t *state = XXH3_createState();
    if (state != NULL)
        CHECK(XXH3_128bits_reset(state) == XXH_OK);
    return (struct content_hash *)state;
}

void content_hash_destroy(struct content_hash *hash) {
    XXH3_freeState(state_of(hash));
}

void content_hash_add(struct content_hash *hash, const void *data, size_t bytes) {
    if (bytes > 0)
        CHECK(XXH3_128bits_update(state_of(hash), data, bytes) == XXH_OK);
}

void content_hash_add_sized(struct content_hash *hash, const void *data, size_t bytes) {
    const uint64_t size = bytes;
    content_hash_add(hash, &size, sizeof(size));
    content_hash_add(hash, data, bytes);
}

static void write_canonical(XXH128_hash_t hash, uint8_t out[static CONTENT_HASH_BYTES]) {
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, hash);
    _Static_assert(sizeof(canonical.digest) == CONTENT_HASH_BYTES, "128 bits");
    memcpy(out, canonical.digest, CONTENT_HASH_BYTES);
}

void content_hash_digest(const struct content_hash *hash, uint8_t out[static CONTENT_HASH_BYTES]) {
    write_canonical(XXH3_128bits_digest((const XXH3_state_t *)hash), out);
}

void content_hash_of(const void *data, size_t bytes, uint8_t out[static CONTENT_HASH_BYTES]) {
    write_canonical(XXH3_128bits(data, bytes), out);
}

uint64_t content_hash_short(const void *data, size_t bytes) {
    return XXH3_64bits(data, bytes);
}
