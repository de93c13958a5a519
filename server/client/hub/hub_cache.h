/* The cache of downloaded repositories, in the layout of the Python package huggingface_hub
 * (file_download.py of 2.4.0), so that each finds what the other fetched:
 *
 *   CACHE/models--ORG--NAME/blobs/ETAG                  a file's content, by its hash
 *                           blobs/ETAG.incomplete a partial one snapshots/COMMIT/NAME ->
 *                           ../../blobs/ETAG refs/REVISION the last known commit of the revision
 *                           .no_exist/COMMIT/NAME a file that is known not to exist
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
    char folder[PATH_MAX]; /* folder of the repository */
    char locks[PATH_MAX];
};

/* ERROR_CONFIG when a path becomes too long. */
int hub_cache_init(struct hub_cache *out, const char *root, const char *repository,
                   struct error *err);

/* Reads the last known commit of the revision; a revision that is a commit stands for itself.
 * Returns false if unknown. */
bool hub_cache_commit(const struct hub_cache *cache, const char *revision,
                      char out[static HUB_COMMIT_BYTES]);
/* Lists the snapshot's files whose contents exist, with their sizes and without hashes; none if
 * there is no snapshot. Fails with ERROR_IO, ERROR_MEMORY or ERROR_SYNTAX. */
int hub_cache_list(const struct hub_cache *cache, const char *commit, struct hub_listing *out,
                   struct error *err);
bool hub_cache_is_absent(const struct hub_cache *cache, const char *commit, const char *name);

/* Writes FOLDER/snapshots/COMMIT[/NAME]; name may be NULL. */
int hub_cache_snapshot_path(const struct hub_cache *cache, const char *commit, const char *name,
                            char out[static PATH_MAX], struct error *err);

/* Creates the folders for blobs and locks. ERROR_IO names the folder that cannot be created. */
int hub_cache_prepare(const struct hub_cache *cache, struct error *err);
/* Makes snapshots/COMMIT/NAME point to the blob, which exists. Fails with ERROR_IO. */
int hub_cache_link(const struct hub_cache *cache, const char *commit, const char *name,
                   const char *etag, struct error *err);
/* Record the revision's commit, and that a file does not exist. Failures are ignored (the cache may
 * be read-only): they only cost a request to the hub next time. */
void hub_cache_set_commit(const struct hub_cache *cache, const char *revision, const char *commit);
void hub_cache_set_absent(const struct hub_cache *cache, const char *commit, const char *name);

/* Sets ERROR_IO with one line: the system refuses this operation on a path in the cache, and what
 * to do. */
int hub_cache_refuse(const char *path, const char *what, int failure, struct error *err);

/* --- Downloading contents --- */

/* The hash by which the hub names a file's content: SHA-256 for files in large-file storage, or
 * git's SHA-1 of a blob ("blob SIZE\0" and the content), distinguished by their length. */
struct hub_digest {
    void *handle; /* of GnuTLS; NULL: not begun */
    int algorithm;
    const char *expected; /* hexadecimal digits, owned by the caller; "": any content is accepted */
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
    int64_t bytes;    /* of the whole content */
    int64_t have;     /* number of bytes that are in the file and in the hash */
    int64_t num_kept; /* bytes of an earlier run in the file that must be hashed */
    int fd, lock_fd;  /* -1: not open */
    struct hub_digest digest;
};

/* Returns whether the text is allowed as the name of a blob. */
bool hub_blob_is_etag(const char *text);

/* etag: as hub_blob_is_etag; hash: 64 or 40 hexadecimal digits, or "". */
void hub_blob_init(struct hub_blob *blob, const struct hub_cache *cache, const char *etag,
                   const char *hash, int64_t bytes);
/* Closes the file, which remains, and releases the lock. */
void hub_blob_finish(struct hub_blob *blob);

/* Returns whether the complete content exists already. */
bool hub_blob_is_there(const struct hub_blob *blob);
/* Returns the size of the .incomplete file, 0 if there is none. */
int64_t hub_blob_partial_bytes(const struct hub_blob *blob);

/* Returns 1 once we have the lock, 0 while another process has it. Fails with ERROR_IO. */
int hub_blob_lock(struct hub_blob *blob, struct error *err);
/* Opens the .incomplete file, whose contents must then be hashed. Fails with ERROR_IO or
 * ERROR_MEMORY. */
int hub_blob_open(struct hub_blob *blob, struct error *err);
/* Hashes a part of what was in the file; returns 1 once all of it is hashed, 0 before. */
int hub_blob_hash_kept(struct hub_blob *blob, struct error *err);
/* Appends bytes. Returns 1 when the content would become too long. */
int hub_blob_append(struct hub_blob *blob, const void *data, size_t length, struct error *err);
/* Discards all bytes. */
int hub_blob_restart(struct hub_blob *blob, struct error *err);
/* Renames complete content to the blob's name. HUB_BLOB_IS_BAD: its hash is wrong, and it is
 * removed. */
enum hub_blob_state hub_blob_complete(struct hub_blob *blob, struct error *err);

#endif
