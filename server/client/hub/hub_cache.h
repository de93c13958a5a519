/* The cache of downloaded repositories, in the layout of the Python package huggingface_hub
 * (file_download.py of 2.4.0), so that each finds what the other fetched:
 *
 *   CACHE/models--ORG--NAME/blobs/ETAG                  a file's content, by its hash
 *                           blobs/ETAG.incomplete       the beginning of one
 *                           snapshots/COMMIT/NAME       -> ../../blobs/ETAG
 *                           refs/REVISION               the commit that it was last
 *                           .no_exist/COMMIT/NAME       a file that is known not to be there
 *   CACHE/.locks/models--ORG--NAME/ETAG.lock            flock(2) of whoever fetches the blob */
#ifndef QUIRE_SERVER_HUB_HUB_CACHE_H
#define QUIRE_SERVER_HUB_HUB_CACHE_H

#include "server/client/hub/hub_listing.h"

#include <limits.h>
#include <stdbool.h>

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

#endif
