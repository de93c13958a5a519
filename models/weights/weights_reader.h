/* Reads the tensors of a model for the ranks that load a share of it, and takes the digest on the
 * way.
 *
 * Ranks that are threads of one process: every one asks for the same pieces in the same order; a
 * piece is read when the last has asked for it, and is there for all until they ask for the next.
 * Ranks that are processes either each read what they keep, or get all that rank 0 reads. */
#ifndef QUIRE_MODELS_WEIGHTS_WEIGHTS_READER_H
#define QUIRE_MODELS_WEIGHTS_WEIGHTS_READER_H

#include "models/config/model.h"
#include "models/weights/weights_digest.h"

/* Bytes of a tensor that are read at a time, in whole rows. No row of a supported model is longer.
 */
#define WEIGHTS_CHUNK_BYTES ((size_t)4 << 20)

struct weights_reader;
struct transport;

enum weights_load_mode {
    /* Each process reads the pieces of which it keeps something, every vector, and the first row of
     * every matrix, by which it is noticed that their files are not the same. */
    WEIGHTS_LOAD_SHARDS,
    WEIGHTS_LOAD_BROADCAST, /* rank 0 reads all, the others get it */
};

/* For ranks that are threads. The model outlives the reader. Reads the settings that the digest
 * covers: ERROR_IO, ERROR_MODEL, ERROR_MEMORY. */
int weights_reader_create(const struct model *model, int32_t num_ranks, struct weights_reader **out,
                          struct error *err);
/* For the only rank of a process of several, which outlive the reader; likewise. */
int weights_reader_create_remote(const struct model *model, struct transport *transport,
                                 enum weights_load_mode mode, struct weights_reader **out,
                                 struct error *err);
/* Reports, after every piece, how many of the bytes that make up the model have been read, here or
 * by another process; the last time it is all of them. Called by the thread of any rank, one at a
 * time; it is to return at once, since all ranks wait. Set before the first read, or never. */
struct weights_progress {
    void (*report)(void *context, size_t bytes_read, size_t num_bytes); /* NULL: nobody asks */
    void *context;
};
void weights_reader_set_progress(struct weights_reader *reader, struct weights_progress progress);

/* Accepts NULL. No rank is loading. */
void weights_reader_destroy(struct weights_reader *reader);

struct weights_piece {
    const struct tensor_info *tensor;
    size_t offset,
        bytes;    /* at most WEIGHTS_CHUNK_BYTES; all of the tensor is asked for, in order */
    bool is_kept; /* the rank needs some of it */
};
/* Gives the bytes of a piece until this rank's next call; *out may be NULL for one that it does not
 * keep. -1 when they cannot be read, on every rank with the same error: ERROR_IO, ERROR_MODEL, or
 * that of a rank which has abandoned its load, in this process or rank 0. */
int weights_reader_read(struct weights_reader *reader, const struct weights_piece *piece,
                        const void **out, struct error *err);
/* Every rank calls it behind its last piece: ERROR_MODEL when rank 0 of another process reads more.
 */
int weights_reader_end(struct weights_reader *reader, struct error *err);
/* Ends the reads of every rank with this error: a rank that failed, or will not load at all, calls
 * it so that the others do not wait for it. Any number of times; the first error stays. */
void weights_reader_abandon(struct weights_reader *reader, const struct error *why);

/* Returns what is known once every rank here has read it all; the reader's. */
struct weights_digest *weights_reader_digest(struct weights_reader *reader);

#endif
