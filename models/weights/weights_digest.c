#include "models/weights/weights_digest.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_CAPACITY 256

static const uint8_t not_read[CONTENT_HASH_BYTES];

static int grow(struct weights_digest *digest, struct error *err) {
    size_t capacity = digest->capacity > 0 ? 2 * digest->capacity : FIRST_CAPACITY;
    void *pieces = realloc(digest->pieces, capacity * sizeof(*digest->pieces));
    if (pieces == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for the hashes of %zu pieces of a model",
                         capacity);
    digest->pieces = pieces;
    digest->capacity = capacity;
    return 0;
}

int weights_digest_add_piece(struct weights_digest *digest, const void *data, size_t bytes,
                             struct error *err) {
    if (digest->num_pieces == digest->capacity && grow(digest, err) != 0)
        return -1;
    uint8_t *piece = digest->pieces[digest->num_pieces++];
    memcpy(piece, not_read, sizeof(not_read));
    if (data != NULL)
        content_hash_of(data, bytes, piece);
    return 0;
}

bool weights_digest_merge(struct weights_digest *digest,
                          const uint8_t (*pieces)[CONTENT_HASH_BYTES]) {
    for (size_t i = 0; i < digest->num_pieces; i++) {
        bool is_known = memcmp(digest->pieces[i], not_read, sizeof(not_read)) != 0;
        bool is_new = memcmp(pieces[i], not_read, sizeof(not_read)) != 0;
        if (is_known && is_new && memcmp(digest->pieces[i], pieces[i], sizeof(not_read)) != 0)
            return false;
        if (is_new)
            memcpy(digest->pieces[i], pieces[i], sizeof(not_read));
    }
    return true;
}

void weights_digest_sum(const struct weights_digest *digest,
                        uint8_t out[static CONTENT_HASH_BYTES]) {
    uint8_t parts[2][CONTENT_HASH_BYTES];
    memcpy(parts[0], digest->settings, CONTENT_HASH_BYTES);
    content_hash_of(digest->pieces, digest->num_pieces * CONTENT_HASH_BYTES, parts[1]);
    content_hash_of(parts, sizeof(parts), out);
}

void weights_digest_finish(struct weights_digest *digest) {
    free(digest->pieces);
    *digest = (struct weights_digest){0};
}
