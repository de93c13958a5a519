/* Fetches files of a repository into the cache: several at once, in one thread, each continued from
 * where an earlier run stopped.
 *
 * First the hub is asked for each file's etag and size (HEAD), then the disk space is checked, then
 * the contents are downloaded. A download that breaks off, stalls, or is answered with 408, 429 or
 * 5xx is retried after a doubling pause, or the one given by Retry-After; at most five times
 * without any further byte in between. */
#ifndef QUIRE_SERVER_CLIENT_HUB_HUB_FETCH_H
#define QUIRE_SERVER_CLIENT_HUB_HUB_FETCH_H

#include "server/client/hub/hub_cache.h"
#include "server/client/hub/hub_http.h"
#include "server/client/hub/hub_progress.h"

#define HUB_MAX_RETRIES 5

struct hub_fetch {
    const struct hub_settings *settings;
    const struct hub_reference *reference;
    const struct hub_cache *cache;
    const struct hub_watcher *watcher;
    struct hub_http *http;
    int max_retries;
    int64_t fetched_bytes; /* downloaded from the network */
};

/* ERROR_CONFIG, ERROR_UNAVAILABLE, ERROR_INTERRUPTED, ERROR_MEMORY. The caller finishes *out. */
int hub_fetch_listing(struct hub_fetch *fetch, struct hub_listing *out, struct error *err);

/* Fetches all files into the snapshot of the listing's commit. On failure the downloaded parts are
 * kept, and the next run continues from there. Errors as above, and ERROR_IO if the cache cannot be
 * written. */
int hub_fetch_files(struct hub_fetch *fetch, const char *commit,
                    const struct hub_file *const *files, size_t num_files, struct error *err);

#endif
