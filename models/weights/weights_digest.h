/* A digest that is equal for models whose files agree in everything that could change an answer:
 * the settings, and the bytes of the tensors, which are added when they are read
 * (weights_reader.c). A chat template from elsewhere does not count.
 *
 * Processes that each read their own share of the files compare what several of them read, and
 * combine the rest: the sum is then that of a process that read everything. */
#ifndef QUIRE_MODELS_WEIGHTS_WEIGHTS_DIGEST_H
#define QUIRE_MODELS_WEIGHTS_WEIGHTS_DIGEST_H

#include "config/base/error.h"
#include "models/config/model.h"
#include "models/files/content_hash.h"

#include <stdbool.h>
#include <stddef.h>

/* Adds every setting in the file, used or not: hyper-parameters, tokenizer, template. In a folder
 * these are whole files, read through `chunk` [chunk_bytes]. Fails with ERROR_IO or ERROR_MODEL. */
int weights_digest_add_settings(struct content_hash *hash, const struct model *model, void *chunk,
                                size_t chunk_bytes, struct error *err);
/* Adds name, type and shape. */
void weights_digest_add_tensor(struct content_hash *hash, const struct tensor_info *tensor);

struct weights_digest {
    /* Of the settings, and of name, type and shape of every tensor. */
    uint8_t settings[CONTENT_HASH_BYTES];
    /* Of the first row of every matrix, if processes read their own shares; otherwise zeros. */
    uint8_t samples[CONTENT_HASH_BYTES];
    uint8_t (*pieces)[CONTENT_HASH_BYTES]; /* in the order of loading; zeros: not read */
    size_t num_pieces, capacity;
};

/* Adds the next piece; data NULL: it was not read here. ERROR_MEMORY. */
int weights_digest_add_piece(struct weights_digest *digest, const void *data, size_t bytes,
                             struct error *err);
/* Adds the digest of another process for the same number of pieces. Returns false when both have
 * read the same piece with different bytes. */
bool weights_digest_merge(struct weights_digest *digest,
                          const uint8_t (*pieces)[CONTENT_HASH_BYTES]);
/* Writes one hash of settings and pieces. */
void weights_digest_sum(const struct weights_digest *digest,
                        uint8_t out[static CONTENT_HASH_BYTES]);
/* The caller finishes *out. ERROR_MEMORY. */
int weights_digest_copy(const struct weights_digest *digest, struct weights_digest *out,
                        struct error *err);
void weights_digest_finish(struct weights_digest *digest);

#endif
