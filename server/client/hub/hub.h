/* Models of a Hugging Face style hub: finds one in the cache or fetches it, and says where it lies.
 *
 * The parts: hub_settings (the environment), hub_listing (names that people write, which files
 * there are, which are read), hub_cache (the layout on disk, contents and their checks), hub_http
 * (requests), hub_fetch (downloads), hub_progress (what is said meanwhile). */
#ifndef QUIRE_SERVER_CLIENT_HUB_HUB_H
#define QUIRE_SERVER_CLIENT_HUB_HUB_H

#include "server/client/hub/hub_cache.h"
#include "server/client/hub/hub_listing.h"
#include "server/client/hub/hub_progress.h"
#include "server/client/hub/hub_settings.h"

#include <limits.h>

enum hub_policy {
    HUB_CACHE_FIRST, /* nothing is asked where the cache has the revision's snapshot as a whole; a
                        hub that does not answer is no error where it has what is needed */
    HUB_NEWEST,      /* the hub says which commit the revision is now */
};

struct hub_model {
    char path[PATH_MAX]; /* a folder, or a (first) GGUF file, in the cache */
    char commit[HUB_COMMIT_BYTES];
    int64_t fetched_bytes; /* that came over the network */
};

/* Waits until the model is there; one thread. On failure one line that says what to do:
 *
 *   ERROR_CONFIG       there is no such model, revision or file, it is gated or private, nothing in
 *                      it can be read, or it is not in the cache and HF_HUB_OFFLINE is set
 *   ERROR_UNAVAILABLE  the hub does not answer, or what it sends is not what it says
 *   ERROR_INTERRUPTED  the watcher stopped it; the same again goes on
 *   ERROR_IO           the cache cannot be written, or the disk is full
 *   ERROR_MEMORY */
int hub_resolve(const struct hub_reference *reference, const struct hub_settings *settings,
                enum hub_policy policy, const struct hub_watcher *watcher, struct hub_model *out,
                struct error *err);

/* --- The models in the cache --- */

/* One that may be opened: the folder of a snapshot, or a GGUF file in it. */
struct hub_inventory_item {
    /* What --model takes: ORG/NAME, with @REVISION unless that is main, and :FILE of a GGUF. */
    char name[HUB_REPOSITORY_BYTES + HUB_REVISION_BYTES + HUB_FILE_NAME_BYTES];
    char path[PATH_MAX];
    char problem[256]; /* why there is nothing to open; "": there is */
};

/* Calls take for each model below the cache's root, sorted by the names of their folders; one
 * without any is none. take returns other than 0 to end it. ERROR_IO, ERROR_MEMORY, or what take
 * returned and set. */
int hub_inventory_read(const char *root,
                       int (*take)(void *context, const struct hub_inventory_item *item,
                                   struct error *err),
                       void *context, struct error *err);

#endif
