/* What a process knows of the bytes of a model that its ranks have read. Processes that each read
 * their own share of the files compare what several of them read, and put the rest together: the
 * sum is then that of a process which read it all. */
#ifndef QUIRE_MODELS_WEIGHTS_WEIGHTS_DIGEST_H
#define QUIRE_MODELS_WEIGHTS_WEIGHTS_DIGEST_H

#include "config/base/error.h"
#include "models/files/content_hash.h"

#include <stdbool.h>
#include <stddef.h>

struct weights_digest {
    /* Of the settings (model_digest.h), and of name, type and shape of every tensor. */
    uint8_t settings[CONTENT_HASH_BYTES];
    /* Of the first row of every matrix, where processes read their own shares; else zeros. */
    uint8_t samples[CONTENT_HASH_BYTES];
    uint8_t (*pieces)[CONTENT_HASH_BYTES]; /* of each, in the order of loading; zeros: not read */
    size_t num_pieces, capacity;
};

/* Adds the next piece; data NULL: it was not read here. ERROR_MEMORY. */
int weights_digest_add_piece(struct weights_digest *digest, const void *data, size_t bytes,
                             struct error *err);
/* Takes over what another process knows of the same number of pieces. Returns false when both have
 * read one of them, and not the same bytes. */
bool weights_digest_merge(struct weights_digest *digest,
                          const uint8_t (*pieces)[CONTENT_HASH_BYTES]);
/* Writes one hash of settings and pieces. */
void weights_digest_sum(const struct weights_digest *digest,
                        uint8_t out[static CONTENT_HASH_BYTES]);
void weights_digest_finish(struct weights_digest *digest);

#endif
