/* The cache of downloaded repositories, in the layout of the Python package huggingface_hub
 * (file_download.py of 2.4.0), so that each finds what the other fetched:
 *
 *   CACHE/models--ORG--NAME/blobs/ETAG                  a file's content, by its hash
 *                           blobs/ETAG.incomplete       the beginning of one
 *                           snapshots/COMMIT/NAME       -> ../../blobs/ETAG
 *                           refs/REVISION               the commit that it was last
 *                           .no_exist/COMMIT/NAME       a file that is known not to be there
 *   CACHE/.locks/models--ORG--NAME/ETAG.lock            flock(2) of whoever fetches the blob */
#ifndef QUIRE_SERVER_CLIENT_HUB_HUB_CACHE_H
#define QUIRE_SERVER_CLIENT_HUB_HUB_CACHE_H

#include "config/base/error.h"
#include "server/client/hub/hub_listing.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hub_cache {
    char folder[PATH_MAX]; /* of the repository */
    char locks[PATH_MAX];
};

/* ERROR_CONFIG when a path becomes too long. */
int hub_cache_init(struct hub_cache *out, const char *root, const char *repository,
                   struct error *err);

/* Reads which commit the revision last was; one that is a commit is itself. Returns false where
 * that is not known. */
bool hub_cache_commit(const struct hub_cache *cache, const char *revision,
                      char out[static HUB_COMMIT_BYTES]);
/* Lists the snapshot's files whose contents are there, with their sizes and without hashes; none
 * where there is no snapshot. ERROR_IO, ERROR_MEMORY, ERROR_SYNTAX. */
int hub_cache_list(const struct hub_cache *cache, const char *commit, struct hub_listing *out,
                   struct error *err);
bool hub_cache_is_absent(const struct hub_cache *cache, const char *commit, const char *name);

/* Writes FOLDER/snapshots/COMMIT[/NAME]; name may be NULL. */
int hub_cache_snapshot_path(const struct hub_cache *cache, const char *commit, const char *name,
                            char out[static PATH_MAX], struct error *err);

/* Makes the folders for blobs and locks. ERROR_IO names the folder that cannot be made. */
int hub_cache_prepare(const struct hub_cache *cache, struct error *err);
/* Makes snapshots/COMMIT/NAME point to the blob, which is there. ERROR_IO. */
int hub_cache_link(const struct hub_cache *cache, const char *commit, const char *name,
                   const char *etag, struct error *err);
/* Write down the revision's commit, and that a file does not exist. What fails costs a question to
 * the hub next time and nothing else, as where the cache is read-only. */
void hub_cache_set_commit(const struct hub_cache *cache, const char *revision, const char *commit);
void hub_cache_set_absent(const struct hub_cache *cache, const char *commit, const char *name);

/* Says in one line that the system refuses this of a path in the cache: ERROR_IO, and what to
 * do. */
int hub_cache_refuse(const char *path, const char *what, int failure, struct error *err);

/* --- Contents that come --- */

/* The hash by which the hub names a file's content: SHA-256 of what lies in large-file storage, or
 * git's SHA-1 of a blob ("blob SIZE\0" and the content), told apart by their length. */
struct hub_digest {
    void *handle; /* of GnuTLS; NULL: not begun */
    int algorithm;
    const char *expected; /* hexadecimal digits, the caller's; "": any content will do */
};

#define HUB_ETAG_BYTES 129

enum hub_blob_state { HUB_BLOB_IS_DONE, HUB_BLOB_IS_BAD, HUB_BLOB_FAILED };

/* One content in the cache while it is fetched: the lock that lets one process fetch it at a time,
 * the .incomplete file that grows, and the hash of what is in it. Only content that has its size
 * and its hash gets the name of the blob. One thread. */
struct hub_blob {
    const struct hub_cache *cache;
    char etag[HUB_ETAG_BYTES];
    char hash[HUB_HASH_BYTES];
    int64_t bytes;    /* of all of it */
    int64_t have;     /* the first so many bytes are in the file and in the hash */
    int64_t num_kept; /* bytes of an earlier run in the file that are to be hashed */
    int fd, lock_fd;  /* -1: not open */
    struct hub_digest digest;
};

/* Returns whether the text may be the name of a blob. */
bool hub_blob_is_etag(const char *text);

/* etag: as hub_blob_is_etag; hash: 64 or 40 hexadecimal digits, or "". */
void hub_blob_init(struct hub_blob *blob, const struct hub_cache *cache, const char *etag,
                   const char *hash, int64_t bytes);
/* Closes the file, which stays, and gives the lock back. */
void hub_blob_finish(struct hub_blob *blob);

/* Returns whether the whole content is there already. */
bool hub_blob_is_there(const struct hub_blob *blob);
/* Returns the bytes of an .incomplete file, 0 where there is none. */
int64_t hub_blob_partial_bytes(const struct hub_blob *blob);

/* Returns 1 once the lock is ours, 0 while another process has it. ERROR_IO. */
int hub_blob_lock(struct hub_blob *blob, struct error *err);
/* Opens the .incomplete file; what is in it is to be hashed. ERROR_IO, ERROR_MEMORY. */
int hub_blob_open(struct hub_blob *blob, struct error *err);
/* Hashes some of what was in the file; returns 1 when all of it is, 0 before. */
int hub_blob_hash_kept(struct hub_blob *blob, struct error *err);
/* Appends what comes behind the bytes that it has. Returns 1 when it would become too long. */
int hub_blob_append(struct hub_blob *blob, const void *data, size_t length, struct error *err);
/* Forgets all bytes. */
int hub_blob_restart(struct hub_blob *blob, struct error *err);
/* Gives content that has all its bytes the blob's name. HUB_BLOB_IS_BAD: it has another hash, and
 * is removed. */
enum hub_blob_state hub_blob_complete(struct hub_blob *blob, struct error *err);

#endif
