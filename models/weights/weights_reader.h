/* Reads the tensors of a model for the ranks that load a share of it, and computes the digest
 * meanwhile.
 *
 * Ranks in one process: each asks for the same pieces in the same order; a piece is read when the
 * last rank has asked for it, and is available to all until they ask for the next. Ranks in several
 * processes either each read what they keep, or receive everything that rank 0 reads. */
#ifndef QUIRE_MODELS_WEIGHTS_WEIGHTS_READER_H
#define QUIRE_MODELS_WEIGHTS_WEIGHTS_READER_H

#include "models/config/model.h"
#include "models/weights/weights_digest.h"

/* Maximum bytes of a tensor read at a time, in whole rows. No row of a supported model is longer.
 */
#define WEIGHTS_CHUNK_BYTES ((size_t)4 << 20)

struct weights_reader;
struct transport;

enum weights_load_mode {
    /* Each process reads the pieces of which it keeps something, every vector, and the first row of
     * every matrix, which reveals whether their files differ. */
    WEIGHTS_LOAD_SHARDS,
    WEIGHTS_LOAD_BROADCAST, /* rank 0 reads everything and sends it to the others */
};

/* Creates a reader for ranks in one process. The model outlives the reader. Reads the settings that
 * the digest covers; fails with ERROR_IO, ERROR_MODEL or ERROR_MEMORY. */
int weights_reader_create(const struct model *model, int32_t num_ranks, struct weights_reader **out,
                          struct error *err);
/* The same for the only rank in a process of several. The transport outlives the reader too. */
int weights_reader_create_remote(const struct model *model, struct transport *transport,
                                 enum weights_load_mode mode, struct weights_reader **out,
                                 struct error *err);
/* Reports, after every piece, how many of the bytes that make up the model have been read, here or
 * by another process; in the last call these are all of them. Called by the thread of any rank, one
 * at a time. It must return at once, because all ranks wait. Set before the first read, or
 * never. */
struct weights_progress {
    void (*report)(void *context, size_t bytes_read, size_t num_bytes); /* may be NULL */
    void *context;
};
void weights_reader_set_progress(struct weights_reader *reader, struct weights_progress progress);

/* Accepts NULL. No rank is loading. */
void weights_reader_destroy(struct weights_reader *reader);

struct weights_piece {
    const struct tensor_info *tensor;
    size_t offset, bytes; /* at most WEIGHTS_CHUNK_BYTES; the whole tensor is requested, in order */
    bool is_kept;         /* the rank needs some of it */
};
/* Returns the bytes of a piece, valid until this rank's next call; *out may be NULL for one that it
 * does not keep. Returns -1 when they cannot be read, on every rank with the same error: ERROR_IO,
 * ERROR_MODEL, or that of a rank in this process, or rank 0, that abandoned its load. */
int weights_reader_read(struct weights_reader *reader, const struct weights_piece *piece,
                        const void **out, struct error *err);
/* Every rank calls it after its last piece. ERROR_MODEL when rank 0 in another process reads more.
 */
int weights_reader_end(struct weights_reader *reader, struct error *err);
/* Ends the reads of every rank with this error. A rank that failed, or will not load at all, calls
 * it so that the others do not wait for it. May be called several times; the first error is
 * kept. */
void weights_reader_abandon(struct weights_reader *reader, const struct error *why);

/* Tells whether every rank in this process has found its weights in a cache (packed_cache.h), so
 * that none reads. Every rank calls it before its first piece, or none does; it waits for the
 * others, and fails like weights_reader_read. Not for a reader that is_chained: rank 0 reads for
 * the others. */
int weights_reader_agree(struct weights_reader *reader, bool is_found, bool *out_all,
                         struct error *err);
bool weights_reader_is_chained(const struct weights_reader *reader);
/* Writes the digest of the settings without the tensors. Before the ranks agree. */
void weights_reader_hash_settings(struct weights_reader *reader,
                                  uint8_t out[static CONTENT_HASH_BYTES]);
/* After all agreed that they read nothing: the digest is this one, which every rank has, and the
 * model counts as read. The reader then owns its pieces. */
void weights_reader_restore(struct weights_reader *reader, struct weights_digest *digest);
/* Copies the digest, for a rank that has read everything. The caller finishes it. ERROR_MEMORY. */
int weights_reader_copy_digest(struct weights_reader *reader, struct weights_digest *out,
                               struct error *err);

/* Returns the digest, complete once every rank in this process has read everything; owned by the
 * reader. */
struct weights_digest *weights_reader_digest(struct weights_reader *reader);

#endif
