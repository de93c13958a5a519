#include "server/client/hub/hub_fetch.h"

#include "config/base/clock.h"
#include "server/client/hub/hub_download.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#define MAX_AT_ONCE 4
#define TURN_MS 100 /* how long a signal, or another process' lock, may go unnoticed */

static int check_stop(const struct hub_fetch *fetch, struct error *err) {
    const struct hub_watcher *watcher = fetch->watcher;
    if (!watcher->stops(watcher->context))
        return 0;
    return error_set(err, ERROR_INTERRUPTED,
                     "%s: interrupted; what came is kept, and the same command goes on from there",
                     fetch->reference->repository);
}

/* --- The list of files ------------------------------------------------------------------------ */

static bool take_json(void *context, const void *data, size_t length) {
    struct byte_buffer *json = context;
    byte_buffer_append(json, data, length);
    return !json->failed;
}

static int write_listing_url(const struct hub_fetch *fetch, char out[static HUB_URL_BYTES],
                             struct error *err) {
    struct byte_buffer url = {.max_length = HUB_URL_BYTES};
    byte_buffer_printf(&url, "%s/api/models/%s/revision/", fetch->settings->endpoint,
                       fetch->reference->repository);
    hub_http_append_escaped(&url, fetch->reference->revision, false);
    byte_buffer_append_text(&url, "?blobs=true");
    byte_buffer_append(&url, "", 1);
    bool fits = !url.failed;
    if (fits)
        memcpy(out, url.data, url.length);
    byte_buffer_finish(&url);
    return fits ? 0 : error_set(err, ERROR_MEMORY, "no memory for a URL");
}

/* Waits for the request to end, until the time of a next attempt before it is started. */
static int perform(struct hub_fetch *fetch, struct hub_request *request, int64_t not_before_ms,
                   struct error *err) {
    while (clock_now_ms() < not_before_ms) {
        if (check_stop(fetch, err) != 0)
            return -1;
        hub_http_wait(fetch->http, TURN_MS);
    }
    if (hub_http_start(fetch->http, request, err) != 0)
        return -1;
    while (hub_http_wait(fetch->http, TURN_MS) == NULL)
        if (check_stop(fetch, err) != 0) {
            hub_http_cancel(fetch->http, request);
            return -1;
        }
    return 0;
}

static int read_listing(const struct hub_fetch *fetch, const struct hub_request *request,
                        const struct byte_buffer *json, struct hub_listing *out,
                        struct error *err) {
    struct error why = {0};
    if (request->is_declined)
        return error_set(err, json->is_full ? ERROR_UNAVAILABLE : ERROR_MEMORY,
                         "%s: the hub's list of files is too long: more than %zu bytes",
                         fetch->reference->repository, HUB_LISTING_MAX_BYTES);
    if (hub_listing_parse(json->data, json->length, out, &why) == 0)
        return 0;
    return error_set(err, why.code == ERROR_SYNTAX ? ERROR_UNAVAILABLE : why.code,
                     "%s: the list of files from %s makes no sense: %.200s",
                     fetch->reference->repository, fetch->settings->endpoint, why.message);
}

int hub_fetch_listing(struct hub_fetch *fetch, struct hub_listing *out, struct error *err) {
    const struct hub_subject subject = {.repository = fetch->reference->repository,
                                        .revision = fetch->reference->revision,
                                        .endpoint = fetch->settings->endpoint,
                                        .has_token = fetch->settings->token[0] != '\0'};
    struct byte_buffer json = {.max_length = HUB_LISTING_MAX_BYTES};
    struct hub_request *request = calloc(1, sizeof(*request));
    struct hub_retry retry = {0};
    int status = request == NULL ? error_set(err, ERROR_MEMORY, "no memory for a request")
                                 : write_listing_url(fetch, request->url, err);
    bool is_done = false;
    while (status == 0 && !is_done) {
        byte_buffer_finish(&json);
        json = (struct byte_buffer){.max_length = HUB_LISTING_MAX_BYTES};
        request->is_small = true;
        request->take = take_json;
        request->context = &json;
        status = perform(fetch, request, retry.not_before_ms, err);
        is_done = status == 0 && (request->is_declined ||
                                  (request->failure[0] == '\0' && request->answer.status == 200));
        if (status == 0 && !is_done)
            status = hub_retry_decide(&retry, fetch, request, &subject, clock_now_ms(), err);
    }
    if (status == 0)
        status = read_listing(fetch, request, &json, out, err);
    byte_buffer_finish(&json);
    free(request);
    return status;
}

/* --- Files ------------------------------------------------------------------------------------ */

struct downloads {
    struct hub_fetch *fetch;
    struct hub_download *items;
    size_t count;
    int64_t num_bytes;
    struct hub_progress progress;
    struct error problem; /* of a body that came */
};

static int64_t bytes_here(const struct downloads *all) {
    int64_t sum = 0;
    for (size_t i = 0; i < all->count; i++)
        sum += hub_download_bytes(&all->items[i]);
    return sum;
}

static void report(struct downloads *all) {
    const struct hub_watcher *watcher = all->fetch->watcher;
    char line[HUB_PROGRESS_LINE_BYTES];
    int64_t now_ns = clock_now_ns();
    if (now_ns < all->progress.next_ns || all->num_bytes == 0)
        return;
    enum hub_message kind =
        hub_progress_update(&all->progress, bytes_here(all), all->num_bytes, now_ns, line);
    watcher->say(watcher->context, kind, line);
}

/* Lets the first few that are not at the goal go on; returns how many those are. */
static int step_all(struct downloads *all, enum hub_stage goal, bool *out_hashes,
                    struct error *err) {
    int num_active = 0;
    *out_hashes = false;
    for (size_t i = 0; i < all->count && num_active < MAX_AT_ONCE; i++) {
        struct hub_download *download = &all->items[i];
        if (download->stage >= goal)
            continue;
        if (hub_download_step(download, clock_now_ms(), err) != 0)
            return -1;
        num_active += download->stage < goal;
        *out_hashes |= download->stage == HUB_HASHING;
    }
    return num_active;
}

static int take_ends(struct downloads *all, int timeout_ms, struct error *err) {
    struct hub_request *request;
    while ((request = hub_http_wait(all->fetch->http, timeout_ms)) != NULL) {
        if (hub_download_take_end(request->context, clock_now_ms(), err) != 0)
            return -1;
        timeout_ms = 0;
    }
    return 0;
}

static int run(struct downloads *all, enum hub_stage goal, struct error *err) {
    for (;;) {
        bool hashes;
        int num_active = step_all(all, goal, &hashes, err);
        if (num_active <= 0)
            return num_active;
        if (check_stop(all->fetch, err) != 0 || take_ends(all, hashes ? 0 : TURN_MS, err) != 0)
            return -1;
        report(all);
    }
}

/* What is still to come must fit, before a byte of it does. */
static int check_room(struct downloads *all, struct error *err) {
    const char *folder = all->fetch->cache->folder;
    char needed[HUB_SIZE_BYTES], free_size[HUB_SIZE_BYTES];
    struct statvfs disk;
    int64_t missing = 0, room;
    for (size_t i = 0; i < all->count; i++) {
        const struct hub_blob *blob = &all->items[i].blob;
        all->num_bytes += blob->bytes;
        missing += hub_blob_is_there(blob) ? 0 : blob->bytes - hub_blob_partial_bytes(blob);
    }
    if (statvfs(folder, &disk) != 0)
        return hub_cache_refuse(folder, "cannot see how much room there is", errno, err);
    if (__builtin_mul_overflow((int64_t)disk.f_bavail, (int64_t)disk.f_frsize, &room) ||
        missing <= room)
        return 0;
    hub_progress_print_size(missing, needed);
    hub_progress_print_size(room, free_size);
    return error_set(err, ERROR_IO,
                     "%.300s: the disk has %s free and %s are to come: free some space, or name "
                     "another cache in HF_HUB_CACHE",
                     folder, free_size, needed);
}

static void say_begin(const struct downloads *all, const char *commit) {
    const struct hub_watcher *watcher = all->fetch->watcher;
    char line[HUB_PROGRESS_LINE_BYTES + HUB_REPOSITORY_BYTES], size[HUB_SIZE_BYTES];
    hub_progress_print_size(all->num_bytes, size);
    snprintf(line, sizeof(line), "fetching   %zu file%s of %s at %.12s, %s", all->count,
             all->count == 1 ? "" : "s", all->fetch->reference->repository, commit, size);
    watcher->say(watcher->context, HUB_LINE, line);
}

static void say_end(const struct downloads *all) {
    const struct hub_watcher *watcher = all->fetch->watcher;
    char line[HUB_PROGRESS_LINE_BYTES];
    hub_progress_end(&all->progress, bytes_here(all), clock_now_ns(), line);
    watcher->say(watcher->context, HUB_LINE, line);
}

static int fetch_all(struct downloads *all, const char *commit, struct error *err) {
    if (hub_cache_prepare(all->fetch->cache, err) != 0 || run(all, HUB_LOCKING, err) != 0 ||
        check_room(all, err) != 0)
        return -1;
    hub_progress_start(&all->progress, bytes_here(all), clock_now_ns(),
                       all->fetch->watcher->is_terminal);
    say_begin(all, commit);
    if (run(all, HUB_HERE, err) != 0)
        return -1;
    say_end(all);
    return 0;
}

int hub_fetch_files(struct hub_fetch *fetch, const char *commit,
                    const struct hub_file *const *files, size_t num_files, struct error *err) {
    struct downloads all = {.fetch = fetch, .count = num_files};
    if (num_files == 0)
        return 0;
    all.items = calloc(num_files, sizeof(*all.items));
    if (all.items == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for %zu downloads", num_files);
    for (size_t i = 0; i < num_files; i++)
        hub_download_init(&all.items[i], fetch, files[i], commit, &all.problem);
    int status = fetch_all(&all, commit, err);
    for (size_t i = 0; i < num_files; i++)
        hub_download_finish(&all.items[i]);
    free(all.items);
    return status;
}
