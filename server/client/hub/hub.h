/* Models of a Hugging Face style hub: finds one in the cache or fetches it, and returns its path.
 *
 * The parts: hub_settings (the environment), hub_listing (model names, the files of a model, and
 * which are needed), hub_cache (the layout on disk, contents and their checks), hub_http
 * (requests), hub_fetch (downloads), hub_progress (progress messages). */
#ifndef QUIRE_SERVER_CLIENT_HUB_HUB_H
#define QUIRE_SERVER_CLIENT_HUB_HUB_H

#include "server/client/hub/hub_cache.h"
#include "server/client/hub/hub_listing.h"
#include "server/client/hub/hub_progress.h"
#include "server/client/hub/hub_settings.h"

#include <limits.h>

enum hub_policy {
    HUB_CACHE_FIRST, /* the hub is not asked if the cache has the revision's complete snapshot; a
                        hub that does not answer is not an error if the cache has what is needed */
    HUB_NEWEST,      /* asks the hub for the revision's current commit */
};

struct hub_model {
    char path[PATH_MAX]; /* a folder, or a (first) GGUF file, in the cache */
    char commit[HUB_COMMIT_BYTES];
    int64_t fetched_bytes; /* downloaded from the network */
};

/* Waits until the model is there; one thread. On failure one line that says what to do:
 * ERROR_CONFIG the model, revision or file does not exist, it is gated or private, it has no
 * supported files, or it is not in the cache and HF_HUB_OFFLINE is set
 *   ERROR_UNAVAILABLE the hub does not answer, or sends wrong data ERROR_INTERRUPTED the watcher
 *   stopped it; running it again continues ERROR_IO the cache cannot be written, or the disk is
 *   full ERROR_MEMORY */
int hub_resolve(const struct hub_reference *reference, const struct hub_settings *settings,
                enum hub_policy policy, const struct hub_watcher *watcher, struct hub_model *out,
                struct error *err);

/* --- The models in the cache --- */

/* A model that can be opened: the folder of a snapshot, or a GGUF file in it. */
struct hub_inventory_item {
    /* The value for --model: ORG/NAME, with @REVISION unless that is main, and :FILE for a GGUF
     * file. */
    char name[HUB_REPOSITORY_BYTES + HUB_REVISION_BYTES + HUB_FILE_NAME_BYTES];
    char path[PATH_MAX];
    char problem[256]; /* why it cannot be opened; "": it can */
};

/* Calls take for each model below the cache's root, sorted by folder name; a folder without usable
 * files is skipped. take returns nonzero to stop. Fails with ERROR_IO, ERROR_MEMORY, or what take
 * returned and set. */
int hub_inventory_read(const char *root,
                       int (*take)(void *context, const struct hub_inventory_item *item,
                                   struct error *err),
                       void *context, struct error *err);

#endif
