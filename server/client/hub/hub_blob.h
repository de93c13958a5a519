/* One content in the cache while it is fetched: the lock that lets one process fetch it at a time,
 * the .incomplete file that grows, and the hash of what is in it. Only content that has its size
 * and its hash gets the name of the blob. One thread. */
#ifndef QUIRE_SERVER_HUB_HUB_BLOB_H
#define QUIRE_SERVER_HUB_HUB_BLOB_H

#include "server/client/hub/hub_cache.h"
#include "server/client/hub/hub_digest.h"

#include <stdbool.h>

#define HUB_ETAG_BYTES 129

enum hub_blob_state { HUB_BLOB_IS_DONE, HUB_BLOB_IS_BAD, HUB_BLOB_FAILED };

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
