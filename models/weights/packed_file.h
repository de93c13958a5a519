/* A file of byte strings ("spans"), written once and mapped read-only afterwards, so that all
 * processes that map it share its pages.
 *
 *   head   magic, version, size, key, table of the spans, a checksum for each chunk of the body,
 *          and one of the head itself; written last
 *   body   the spans, each aligned to PACKED_ALIGNMENT; a chunk is 4 MiB of the file
 *
 * A mapping is returned only after every checksum was compared: with XXH3 that takes as long as to
 * read the pages once, by several threads, and the first step reads all of them anyway. So neither
 * a flipped bit, a truncation nor a crash while the file was written leads to wrong bytes.
 *
 * Nobody may write to or truncate a file that is mapped (SIGBUS): here files are only ever created
 * under a temporary name, renamed, and unlinked. A file counts only if this user owns it and no one
 * else may write to it. */
#ifndef QUIRE_MODELS_WEIGHTS_PACKED_FILE_H
#define QUIRE_MODELS_WEIGHTS_PACKED_FILE_H

#include "config/base/error.h"
#include "kernels/packing.h"
#include "models/files/content_hash.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Writes the spans, which do not change meanwhile, to a file of mode 0600 that then has this path,
 * in place of any other. Returns 0 also if another process is writing the same file, or *stop
 * became true: *out_written says whether the file is there. ERROR_IO or ERROR_MEMORY: nothing is
 * left of it. */
int packed_file_write(const char *path, const uint8_t key[static CONTENT_HASH_BYTES],
                      const struct packed_bytes *spans, size_t num_spans, const atomic_bool *stop,
                      bool *out_written, struct error *err);

/* Returns the size of a file with these spans. */
uint64_t packed_file_bytes(const struct packed_bytes *spans, size_t num_spans);

struct packed_file {
    void *reserved; /* that the mapping lies in, at a huge page */
    size_t reserved_bytes;
    uint8_t *data; /* NULL: none */
    size_t bytes;
    size_t num_spans;
};

enum packed_file_state {
    PACKED_FILE_VALID,
    PACKED_FILE_MISSING,
    PACKED_FILE_UNUSABLE, /* damaged, of another version or key, or of another user: see the error
                           */
};

/* Maps the file, in huge pages where the system can, and checks it with up to num_threads threads,
 * which also loads its pages. The file's time of modification becomes the time of this use. */
enum packed_file_state packed_file_map(const char *path,
                                       const uint8_t key[static CONTENT_HASH_BYTES],
                                       int num_threads, struct packed_file *out, struct error *err);
/* index < num_spans. Only to be read; valid until packed_file_unmap. */
struct packed_bytes packed_file_span(const struct packed_file *file, size_t index);
void packed_file_unmap(struct packed_file *file); /* accepts a zeroed one */

#define PACKED_FILE_SUFFIX ".packed"

/* Deletes files of this kind in the folder, the least recently used first, until the rest and
 * more_bytes are within max_bytes; never `kept`, a name in the folder, or one that is being
 * written. Processes that have mapped a deleted file keep it. */
void packed_file_prune(const char *folder, const char *kept, uint64_t more_bytes,
                       uint64_t max_bytes);

#endif
