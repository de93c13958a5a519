#include "server/client/hub/hub.h"

#include "server/client/hub/hub_fetch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_INDEX_BYTES ((size_t)32 << 20) /* as models/files/safetensors.c */

/* One model being resolved. */
struct resolution {
    const struct hub_reference *reference;
    const struct hub_settings *settings;
    const struct hub_watcher *watcher;
    struct hub_cache cache;
    struct hub_model *model;
};

/* Puts the repository's name before what is wrong with it. */
static int name_repository(const struct resolution *r, const struct error *why, struct error *err) {
    return error_set(err, why->code == ERROR_SYNTAX ? ERROR_CONFIG : why->code, "%s: %.400s",
                     r->reference->repository, why->message);
}

/* --- The index of shards, which lies in the snapshot --- */

static int read_all(int fd, const char *path, struct byte_buffer *out, struct error *err) {
    char chunk[1 << 16];
    ssize_t count;
    while ((count = read(fd, chunk, sizeof(chunk))) > 0)
        byte_buffer_append(out, chunk, (size_t)count);
    if (count < 0)
        return error_set(err, ERROR_IO, "%.400s: %s", path, strerror(errno));
    if (out->failed)
        return error_set(err, out->is_full ? ERROR_CONFIG : ERROR_MEMORY,
                         "%.400s: more than %zu bytes", path, MAX_INDEX_BYTES);
    return 0;
}

static int add_shards(const struct resolution *r, const struct hub_listing *listing,
                      struct hub_selection *selection, struct error *err) {
    struct byte_buffer text = {.max_length = MAX_INDEX_BYTES};
    char path[PATH_MAX];
    if (selection->index == NULL)
        return 0;
    if (hub_cache_snapshot_path(&r->cache, listing->commit, selection->index->name, path, err) != 0)
        return -1;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return error_set(err, ERROR_IO, "%.400s: %s", path, strerror(errno));
    int status = read_all(fd, path, &text, err);
    close(fd);
    if (status == 0)
        status = hub_selection_add_shards(selection, listing, text.data, text.length, err);
    byte_buffer_finish(&text);
    return status;
}

/* --- In the cache --- */

static int set_model(const struct resolution *r, const char *commit,
                     const struct hub_selection *selection, struct error *err) {
    memcpy(r->model->commit, commit, HUB_COMMIT_BYTES);
    return hub_cache_snapshot_path(&r->cache, commit,
                                   selection->gguf != NULL ? selection->gguf->name : NULL,
                                   r->model->path, err);
}

/* A file that a folder may do without is known to be there or not to be. */
static bool knows_optional(const struct resolution *r, const struct hub_listing *listing) {
    for (const char *const *name = hub_selection_optional_names(); *name != NULL; name++)
        if (hub_listing_find(listing, *name) == NULL &&
            !hub_cache_is_absent(&r->cache, listing->commit, *name))
            return false;
    return true;
}

enum cached { NOT_CACHED, IS_USABLE, IS_COMPLETE };

/* Looks for the revision as the cache last knew it. Where it has what is needed the model is set;
 * *err says what is missing otherwise. */
static enum cached find_cached(const struct resolution *r, struct error *err) {
    char commit[HUB_COMMIT_BYTES];
    struct hub_listing listing;
    struct hub_selection selection;
    enum cached found = NOT_CACHED;
    if (!hub_cache_commit(&r->cache, r->reference->revision, commit)) {
        error_set(err, ERROR_CONFIG, "has no revision %.100s there", r->reference->revision);
        return NOT_CACHED;
    }
    if (hub_cache_list(&r->cache, commit, &listing, err) != 0)
        return NOT_CACHED;
    if (hub_selection_make(&listing, r->reference->choice, &selection, err) == 0 &&
        add_shards(r, &listing, &selection, err) == 0 && set_model(r, commit, &selection, err) == 0)
        found = selection.gguf != NULL || knows_optional(r, &listing) ? IS_COMPLETE : IS_USABLE;
    hub_listing_finish(&listing);
    return found;
}

static int refuse_offline(const struct resolution *r, const struct error *why, struct error *err) {
    return error_set(
        err, ERROR_CONFIG,
        "%s: is not in the cache (%.150s), or not complete: %.150s; unset HF_HUB_OFFLINE to "
        "fetch it",
        r->reference->repository, r->settings->cache, why->message);
}

/* --- From the hub --- */

/* Fetches those of the selection that the snapshot does not have. */
static int fetch_missing(struct hub_fetch *fetch, const struct resolution *r,
                         const struct hub_listing *listing, const struct hub_selection *selection,
                         struct error *err) {
    const struct hub_file *missing[HUB_MAX_SELECTED];
    struct hub_listing here;
    size_t num_missing = 0;
    if (hub_cache_list(&r->cache, listing->commit, &here, err) != 0)
        return -1;
    for (size_t i = 0; i < selection->num_files; i++) {
        const struct hub_file *file = selection->files[i];
        const struct hub_file *cached = hub_listing_find(&here, file->name);
        if (cached == NULL || (file->bytes >= 0 && file->bytes != cached->bytes))
            missing[num_missing++] = file;
    }
    hub_listing_finish(&here);
    return hub_fetch_files(fetch, listing->commit, missing, num_missing, err);
}

/* The index comes before the shards that it names. */
static int fetch_selection(struct hub_fetch *fetch, const struct resolution *r,
                           const struct hub_listing *listing, struct error *err) {
    struct hub_selection selection;
    struct error why = {0};
    if (hub_selection_make(listing, r->reference->choice, &selection, &why) != 0)
        return name_repository(r, &why, err);
    if (selection.index != NULL && fetch_missing(fetch, r, listing, &selection, err) != 0)
        return -1;
    if (add_shards(r, listing, &selection, &why) != 0)
        return name_repository(r, &why, err);
    if (fetch_missing(fetch, r, listing, &selection, err) != 0)
        return -1;
    hub_cache_set_commit(&r->cache, r->reference->revision, listing->commit);
    for (const char *const *name = hub_selection_optional_names(); *name != NULL; name++)
        if (selection.gguf == NULL && hub_listing_find(listing, *name) == NULL)
            hub_cache_set_absent(&r->cache, listing->commit, *name);
    return set_model(r, listing->commit, &selection, err);
}

static int fetch_model(const struct resolution *r, int max_retries, struct error *err) {
    struct hub_fetch fetch = {.settings = r->settings,
                              .reference = r->reference,
                              .cache = &r->cache,
                              .watcher = r->watcher,
                              .max_retries = max_retries};
    struct hub_listing listing;
    if (hub_http_create(r->settings, &fetch.http, err) != 0)
        return -1;
    int status = hub_fetch_listing(&fetch, &listing, err);
    if (status == 0) {
        status = fetch_selection(&fetch, r, &listing, err);
        hub_listing_finish(&listing);
    }
    r->model->fetched_bytes = fetch.fetched_bytes;
    hub_http_destroy(fetch.http);
    return status;
}

/* --- Both --- */

static int resolve(struct resolution *r, enum hub_policy policy, struct error *err) {
    char line[sizeof(err->message) + 64];
    struct error why = {0};
    struct hub_model cached;
    enum cached found =
        policy == HUB_NEWEST && !r->settings->is_offline ? NOT_CACHED : find_cached(r, &why);
    if (found == IS_COMPLETE || (found == IS_USABLE && r->settings->is_offline))
        return 0;
    if (r->settings->is_offline)
        return refuse_offline(r, &why, err);
    cached = *r->model;
    if (fetch_model(r, found == IS_USABLE ? 0 : HUB_MAX_RETRIES, err) == 0)
        return 0;
    if (found != IS_USABLE || err->code != ERROR_UNAVAILABLE)
        return -1;
    snprintf(line, sizeof(line), "%s; using the cache, which is complete", err->message);
    r->watcher->say(r->watcher->context, HUB_WARNING, line);
    *r->model = cached;
    return 0;
}

int hub_resolve(const struct hub_reference *reference, const struct hub_settings *settings,
                enum hub_policy policy, const struct hub_watcher *watcher, struct hub_model *out,
                struct error *err) {
    struct hub_model model = {0};
    struct resolution r = {
        .reference = reference, .settings = settings, .watcher = watcher, .model = &model};
    if (hub_cache_init(&r.cache, settings->cache, reference->repository, err) != 0 ||
        resolve(&r, policy, err) != 0)
        return -1;
    *out = model;
    return 0;
}

/* --- The models in the cache --- */

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

/* --- Folders, sorted --- */

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

/* --- Which revision a commit is --- */

/* If several revisions are the commit, main is chosen, otherwise the alphabetically last one. A
 * revision in a subfolder (refs/pr/1) is found by its commit. */
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

/* --- Snapshots --- */

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

/* --- Repositories --- */

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
