/* One file on its way into the cache, as stages that hub_fetch.c has follow each other. One
 * thread. */
#ifndef QUIRE_SERVER_HUB_HUB_DOWNLOAD_H
#define QUIRE_SERVER_HUB_HUB_DOWNLOAD_H

#include "server/client/hub/hub_blob.h"
#include "server/client/hub/hub_retry.h"

enum hub_stage {
    HUB_ASKING,  /* the hub for etag and size */
    HUB_LOCKING, /* no other process fetches the same */
    HUB_HASHING, /* what an earlier run left */
    HUB_GETTING,
    HUB_HERE,
};

struct hub_download {
    struct hub_fetch *fetch;
    const struct hub_file *file;
    const char *commit;
    enum hub_stage stage;
    struct hub_request request; /* runs while its exchange is there */
    struct hub_retry retry;
    struct hub_blob blob;  /* from HUB_LOCKING on */
    int64_t most_bytes;    /* that the blob ever had */
    int num_bad;           /* contents with another hash */
    bool is_known_to_wait; /* the watcher was told of somebody else's lock */
    bool has_body;         /* of the request that runs, the first bytes were looked at */
    struct error *problem; /* of the body that comes; set before take returns false */
};

void hub_download_init(struct hub_download *download, struct hub_fetch *fetch,
                       const struct hub_file *file, const char *commit, struct error *problem);
/* Ends what runs; what came stays. */
void hub_download_finish(struct hub_download *download);

/* Goes on as far as it can now. Errors as of hub_fetch_files. */
int hub_download_step(struct hub_download *download, int64_t now_ms, struct error *err);
/* Takes the end of its request. */
int hub_download_take_end(struct hub_download *download, int64_t now_ms, struct error *err);

/* Returns the bytes that are there, from HUB_LOCKING on. */
int64_t hub_download_bytes(const struct hub_download *download);

#endif
