/* Reads the tensors of a model once for all ranks that load a share of it, and takes the digest on
 * the way. Every rank asks for the same pieces in the same order, each from its own thread; a piece
 * is read when the last has asked for it, and is there for all until they ask for the next. */
#ifndef QUIRE_MODELS_WEIGHTS_WEIGHTS_READER_H
#define QUIRE_MODELS_WEIGHTS_WEIGHTS_READER_H

#include "models/files/content_hash.h"
#include "models/model.h"

/* Bytes of a tensor that are read at a time, in whole rows. No row of a supported model is longer.
 */
#define WEIGHTS_CHUNK_BYTES ((size_t)16 << 20)

struct weights_reader;

/* The model outlives the reader. Reads the settings that the digest covers: ERROR_IO, ERROR_MODEL,
 * ERROR_MEMORY. */
int weights_reader_create(const struct model *model, int32_t num_ranks, struct weights_reader **out,
                          struct error *err);
/* Reports, after every read, how many of the bytes that make up the model have been read; the last
 * time it is all of them. Called by the thread of any rank, one at a time; it is to return at once,
 * since all ranks wait. Set before the first read, or never. */
struct weights_progress {
    void (*report)(void *context, size_t bytes_read, size_t num_bytes); /* NULL: nobody asks */
    void *context;
};
void weights_reader_set_progress(struct weights_reader *reader, struct weights_progress progress);

/* Accepts NULL. No rank is loading. */
void weights_reader_destroy(struct weights_reader *reader);

/* Returns these bytes of the tensor, at most WEIGHTS_CHUNK_BYTES, until this rank's next call; the
 * whole tensor is to be read, in order. NULL when they cannot be read, on every rank with the same
 * error: ERROR_IO, ERROR_MODEL, or that of a rank which has abandoned its load. */
const void *weights_reader_read(struct weights_reader *reader, const struct tensor_info *tensor,
                                size_t offset, size_t bytes, struct error *err);
/* Ends the reads of every rank with this error: a rank that failed, or will not load at all, calls
 * it so that the others do not wait for it. Any number of times; the first error stays. */
void weights_reader_abandon(struct weights_reader *reader, const struct error *why);

/* Writes the digest of the settings and of name, type, shape and bytes of every tensor read. Once
 * this rank has read them all. */
void weights_reader_digest(const struct weights_reader *reader,
                           uint8_t out[static CONTENT_HASH_BYTES]);

#endif
