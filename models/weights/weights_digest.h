/* A digest that is equal for models whose files are the same in everything that could change an
 * answer: the settings, and the bytes of the tensors, which are added where they are read
 * (weights_reader.c). A chat template from elsewhere does not count.
 *
 * Processes that each read their own share of the files compare what several of them read, and put
 * the rest together: the sum is then that of a process which read it all. */
#ifndef QUIRE_MODELS_WEIGHTS_WEIGHTS_DIGEST_H
#define QUIRE_MODELS_WEIGHTS_WEIGHTS_DIGEST_H

#include "config/base/error.h"
#include "models/config/model.h"
#include "models/files/content_hash.h"

#include <stdbool.h>
#include <stddef.h>

/* Adds every setting as the file has it, read or not: hyper-parameters, tokenizer, template. Of a
 * folder these are whole files, read through `chunk` [chunk_bytes]. ERROR_IO, ERROR_MODEL. */
int weights_digest_add_settings(struct content_hash *hash, const struct model *model, void *chunk,
                                size_t chunk_bytes, struct error *err);
/* Adds name, type and shape. */
void weights_digest_add_tensor(struct content_hash *hash, const struct tensor_info *tensor);

struct weights_digest {
    /* Of the settings, and of name, type and shape of every tensor. */
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
