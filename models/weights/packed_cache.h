/* A cache of packed weights in files: what a backend made of a rank's share of a model, so that the
 * next start maps it instead of reading and repacking the model (packed_file.h).
 *
 * A rank's file has everything that weights_load takes from a model's tensors, in the order of
 * loading: vectors as floats, as they were read, and each matrix as the backend packed it. Both are
 * applied as if they had just been read, so what loading computes from vectors is not cached. The
 * digest of the model (weights_digest.h) is in it too, because the tensors are not read.
 *
 * A file is found by its name, a hash of everything that decides its bytes:
 *   - the model's metadata or folder of settings, and name, type, shape and place of every tensor;
 *   - size, inode, and times of change (mtime and ctime, in ns) of each of its files, but not their
 *     paths: the tensors' bytes are not read, and a file that is touched, copied or moved to
 * another disk counts as another one;
 *   - the backend's layout for each type, the rank's share, the type that matrices are requantised
 *     to, and the hash of the program's sources and compiler.
 * So what would differ is simply not found. It is written when the model was loaded, by a thread of
 * low priority that reads the weights in use.
 *
 * A failure is logged and never fails a load: without the folder, the room or the right to write,
 * every start reads the model. Used by the rank's thread. */
#ifndef QUIRE_MODELS_WEIGHTS_PACKED_CACHE_H
#define QUIRE_MODELS_WEIGHTS_PACKED_CACHE_H

#include "kernels/backend.h"
#include "models/weights/weights.h"
#include "models/weights/weights_digest.h"

struct packed_cache;

/* Looks for the rank's file, and maps it if it is there and sound. NULL: the cache cannot be used,
 * which was logged. The options and the model outlive it. settings: the digest of the model's
 * settings. */
struct packed_cache *packed_cache_open(const struct backend *backend, const struct model *model,
                                       const struct model_shard *shard,
                                       const struct weights_options *options,
                                       const uint8_t settings[static CONTENT_HASH_BYTES]);
bool packed_cache_is_found(const struct packed_cache *cache); /* accepts NULL */
/* From now on it counts as not found: another rank must read the model. */
void packed_cache_forget(struct packed_cache *cache); /* accepts NULL */

/* If it is found. *out owns its pieces. ERROR_MEMORY. */
int packed_cache_get_digest(const struct packed_cache *cache, struct weights_digest *out,
                            struct error *err);
/* Returns the next vector or matrix, in the order in which they were added. ERROR_MODEL when there
 * is none of this many bytes (SIZE_MAX: of any). */
int packed_cache_next(struct packed_cache *cache, size_t bytes, struct packed_bytes *out,
                      struct error *err);
/* Returns the bytes that are mapped; 0 for NULL. */
size_t packed_cache_mapped_bytes(const struct packed_cache *cache);

/* If it is not found: add what was loaded. A matrix's bytes stay as they are until
 * packed_cache_end_writing; a vector is copied. Both accept NULL. */
void packed_cache_add_vector(struct packed_cache *cache, const float *values, size_t count);
void packed_cache_add_matrix(struct packed_cache *cache, struct packed_bytes packed);
/* Begins to write the file, unless the model's files have changed since packed_cache_open. */
void packed_cache_write(struct packed_cache *cache, const struct weights_digest *digest);
/* Ends the writing, also before its end: nothing is left of the file then. Called before any matrix
 * is destroyed. Accepts NULL. */
void packed_cache_end_writing(struct packed_cache *cache);
/* The matrices that were mapped are destroyed. Accepts NULL. */
void packed_cache_close(struct packed_cache *cache);

#endif
