/* The models in the cache (hub_cache.h). */
#ifndef QUIRE_SERVER_HUB_HUB_INVENTORY_H
#define QUIRE_SERVER_HUB_HUB_INVENTORY_H

#include "server/client/hub/hub_cache.h"

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
