#include "server/client/hub/hub_inventory.h"

#include "server/client/hub/hub_selection.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char folder_prefix[] = "models--";

struct inventory {
    const char *root;
    struct hub_cache cache; /* of one repository */
    char repository[HUB_REPOSITORY_BYTES];
    char revision[HUB_REVISION_BYTES]; /* "" where it is main */
    int (*take)(void *context, const struct hub_inventory_item *item, struct error *err);
    void *context;
    struct error *err;
};

/* --- Folders, sorted -------------------------------------------------------------------------- */

static int is_shown(const struct dirent *entry) {
    return entry->d_name[0] != '.';
}

/* Calls visit for each entry that does not begin with a dot. */
static int each_entry(struct inventory *inventory, const char *folder,
                      int (*visit)(struct inventory *inventory, const char *name)) {
    struct dirent **entries;
    int count = scandir(folder, &entries, is_shown, alphasort), status = 0;
    if (count < 0)
        return errno == ENOENT
                   ? 0
                   : error_set(inventory->err, ERROR_IO, "%.400s: %s", folder, strerror(errno));
    for (int i = 0; i < count; i++) {
        if (status == 0)
            status = visit(inventory, entries[i]->d_name);
        free(entries[i]);
    }
    free(entries);
    return status;
}

/* --- Which revision a commit is --------------------------------------------------------------- */

/* Of several revisions that are the commit, main is the one; else the last in the alphabet. A
 * revision in a folder of its own (refs/pr/1) is found by its commit. */
static void name_revision(struct inventory *inventory, const char *commit) {
    char folder[PATH_MAX + 8], known[HUB_COMMIT_BYTES];
    struct dirent **entries;
    snprintf(inventory->revision, sizeof(inventory->revision), "%s", commit);
    snprintf(folder, sizeof(folder), "%s/refs", inventory->cache.folder);
    int count = scandir(folder, &entries, is_shown, alphasort);
    for (int i = 0; i < count; i++) {
        if (hub_cache_commit(&inventory->cache, entries[i]->d_name, known) &&
            strcmp(known, commit) == 0)
            snprintf(inventory->revision, sizeof(inventory->revision), "%s", entries[i]->d_name);
        free(entries[i]);
    }
    if (count >= 0)
        free(entries);
    if (hub_cache_commit(&inventory->cache, "main", known) && strcmp(known, commit) == 0)
        inventory->revision[0] = '\0';
}

/* --- Snapshots -------------------------------------------------------------------------------- */

static int take_item(struct inventory *inventory, const char *commit, const char *file,
                     const char *problem) {
    struct hub_inventory_item *item = calloc(1, sizeof(*item));
    if (item == NULL)
        return error_set(inventory->err, ERROR_MEMORY, "no memory for a list of models");
    bool has_revision = inventory->revision[0] != '\0';
    snprintf(item->name, sizeof(item->name), "%s%s%s%s%s", inventory->repository,
             has_revision ? "@" : "", inventory->revision, file != NULL ? ":" : "",
             file != NULL ? file : "");
    snprintf(item->problem, sizeof(item->problem), "%s", problem);
    int status =
        hub_cache_snapshot_path(&inventory->cache, commit, file, item->path, inventory->err);
    if (status == 0)
        status = inventory->take(inventory->context, item, inventory->err);
    free(item);
    return status;
}

static int take_listing(struct inventory *inventory, const struct hub_listing *listing) {
    struct hub_selection selection;
    struct error why = {0};
    bool is_folder = hub_selection_make(listing, "", &selection, &why) == 0 && !selection.gguf;
    bool has_gguf = false;
    int status = is_folder ? take_item(inventory, listing->commit, NULL, "") : 0;
    for (size_t i = 0; i < listing->num_files && status == 0; i++) {
        if (!hub_selection_is_gguf(listing->files[i].name))
            continue;
        has_gguf = true;
        status = take_item(inventory, listing->commit, listing->files[i].name, "");
    }
    if (is_folder || has_gguf)
        return status;
    return take_item(inventory, listing->commit, NULL, why.message);
}

static int visit_snapshot(struct inventory *inventory, const char *commit) {
    struct hub_listing listing;
    if (!hub_reference_is_commit(commit))
        return 0;
    name_revision(inventory, commit);
    if (hub_cache_list(&inventory->cache, commit, &listing, inventory->err) != 0)
        return -1;
    int status = take_listing(inventory, &listing);
    hub_listing_finish(&listing);
    return status;
}

/* --- Repositories ----------------------------------------------------------------------------- */

/* Returns whether the folder is called as that of a model's repository: "models--ORG--NAME". */
static bool read_folder_name(const char *folder, char out[static HUB_REPOSITORY_BYTES]) {
    struct hub_reference reference;
    size_t length = strlen(folder_prefix);
    const char *organisation = folder + length;
    const char *middle =
        strncmp(folder, folder_prefix, length) == 0 ? strstr(organisation, "--") : NULL;
    if (middle == NULL ||
        snprintf(out, HUB_REPOSITORY_BYTES, "%.*s/%s", (int)(middle - organisation), organisation,
                 middle + 2) >= HUB_REPOSITORY_BYTES)
        return false;
    return hub_reference_parse(out, &reference, NULL) == 0;
}

static int visit_repository(struct inventory *inventory, const char *folder) {
    char snapshots[PATH_MAX + 16];
    if (!read_folder_name(folder, inventory->repository))
        return 0;
    if (hub_cache_init(&inventory->cache, inventory->root, inventory->repository, inventory->err) !=
        0)
        return -1;
    snprintf(snapshots, sizeof(snapshots), "%s/snapshots", inventory->cache.folder);
    return each_entry(inventory, snapshots, visit_snapshot);
}

int hub_inventory_read(const char *root,
                       int (*take)(void *context, const struct hub_inventory_item *item,
                                   struct error *err),
                       void *context, struct error *err) {
    struct inventory inventory = {.root = root, .take = take, .context = context, .err = err};
    return each_entry(&inventory, root, visit_repository);
}
