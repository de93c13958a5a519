#include "server/client/hub/hub_fetch.h"

#include "config/base/byte_buffer.h"
#include "config/base/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#define FIRST_PAUSE_MS 500
#define MAX_ATTEMPTS 1000 /* of a server that lets a few bytes through each time */
#define MAX_BAD 2         /* contents with another hash: the first may come of an earlier run */
#define MAX_AT_ONCE 4
#define TURN_MS 100 /* how long a signal, or another process' lock, may go unnoticed */

/* --- Trying again --- */

/* Zeroed: nothing has failed. */
struct retry {
    int num_failures; /* one after the other, without a byte that was new */
    int num_attempts; /* that failed in all */
    int64_t not_before_ms;
};

static int64_t pause_ms(const struct retry *retry, const struct hub_request *request) {
    int64_t asked_s = request->answer.retry_after_s;
    if (request->failure[0] == '\0' && asked_s >= 0)
        return asked_s * 1000;
    return (int64_t)FIRST_PAUSE_MS << (retry->num_failures - 1);
}

/* Decides what to do about a failed request: returns 0 with the time of the next try in *retry, or
 * -1 with the line for the user. Informs the watcher. */
static int decide_retry(struct retry *retry, const struct hub_fetch *fetch,
                        const struct hub_request *request, const struct hub_subject *subject,
                        int64_t now_ms, struct error *err) {
    char line[sizeof(err->message) + 64];
    struct error why;
    hub_answer_refuse(request, subject, &why);
    retry->num_failures++;
    retry->num_attempts++;
    if (!hub_answer_may_retry(request) || retry->num_failures > fetch->max_retries ||
        retry->num_attempts > MAX_ATTEMPTS ||
        request->answer.retry_after_s > HUB_MAX_RETRY_AFTER_S) {
        *err = why;
        return -1;
    }
    int64_t wait_ms = pause_ms(retry, request);
    retry->not_before_ms = now_ms + wait_ms;
    snprintf(line, sizeof(line), "%s; again in %.1f s", why.message, (double)wait_ms / 1000);
    fetch->watcher->say(fetch->watcher->context, HUB_WARNING, line);
    return 0;
}

/* --- One file, in stages --- */

enum stage {
    ASKING,  /* the hub for etag and size */
    LOCKING, /* no other process fetches the same */
    HASHING, /* what an earlier run left */
    GETTING,
    HERE,
};

struct download {
    struct hub_fetch *fetch;
    const struct hub_file *file;
    const char *commit;
    enum stage stage;
    struct hub_request request; /* runs while its exchange is there */
    struct retry retry;
    struct hub_blob blob;  /* from LOCKING on */
    int64_t most_bytes;    /* that the blob ever had */
    int num_bad;           /* contents with another hash */
    bool is_known_to_wait; /* the watcher was told of somebody else's lock */
    bool has_body;         /* of the request that runs, the first bytes were looked at */
    struct error *problem; /* of the body that comes; set before take returns false */
};

static void download_init(struct download *download, struct hub_fetch *fetch,
                          const struct hub_file *file, const char *commit, struct error *problem) {
    *download =
        (struct download){.fetch = fetch, .file = file, .commit = commit, .problem = problem};
    hub_blob_init(&download->blob, fetch->cache, "", "", 0);
}

/* Ends what runs; what came stays. */
static void download_finish(struct download *download) {
    hub_http_cancel(download->fetch->http, &download->request);
    hub_blob_finish(&download->blob);
}

static const char *repository(const struct download *download) {
    return download->fetch->reference->repository;
}

static struct hub_subject subject(const struct download *download) {
    const struct hub_fetch *fetch = download->fetch;
    return (struct hub_subject){.repository = fetch->reference->repository,
                                .revision = fetch->reference->revision,
                                .endpoint = fetch->settings->endpoint,
                                .file = download->file->name,
                                .has_token = fetch->settings->token[0] != '\0'};
}

static int refuse(const struct download *download, const char *what, struct error *err) {
    return error_set(err, ERROR_UNAVAILABLE, "%s: %.200s: %s", repository(download),
                     download->file->name, what);
}

/* --- Requests --- */

static bool take(void *context, const void *data, size_t length);

/* Each file is asked for by its commit, so that no two parts are of different ones. */
static int start_request(struct download *download, bool is_head, struct error *err) {
    struct hub_request *request = &download->request;
    struct byte_buffer url = {.max_length = HUB_URL_BYTES};
    byte_buffer_printf(&url, "%s/%s/resolve/%s/", download->fetch->settings->endpoint,
                       repository(download), download->commit);
    hub_http_append_escaped(&url, download->file->name, true);
    byte_buffer_append(&url, "", 1);
    *request = (struct hub_request){.is_head = is_head,
                                    .range_begin = is_head ? 0 : download->blob.have,
                                    .take = is_head ? NULL : take,
                                    .context = download};
    if (!url.failed)
        memcpy(request->url, url.data, url.length);
    bool fits = !url.failed;
    byte_buffer_finish(&url);
    download->has_body = false;
    return fits ? hub_http_start(download->fetch->http, request, err)
                : error_set(err, ERROR_MEMORY, "no memory for a URL");
}

static int try_again(struct download *download, int64_t now_ms, struct error *err) {
    struct hub_subject of = subject(download);
    return decide_retry(&download->retry, download->fetch, &download->request, &of, now_ms, err);
}

/* --- What the hub says of the file --- */

static int64_t said_bytes(const struct hub_answer *answer) {
    if (answer->linked_bytes >= 0)
        return answer->linked_bytes;
    return answer->status / 100 == 3 ? -1 : answer->content_bytes;
}

/* The list of files and the file's own header must agree. */
static int take_answer(struct download *download, struct error *err) {
    const struct hub_answer *answer = &download->request.answer;
    const struct hub_file *file = download->file;
    bool is_linked = answer->linked_etag[0] != '\0';
    char etag[HUB_FIELD_BYTES];
    hub_answer_normalise_etag(is_linked ? answer->linked_etag : answer->etag, etag);
    int64_t bytes = said_bytes(answer) >= 0 ? said_bytes(answer) : file->bytes;
    if (strcmp(answer->commit, download->commit) != 0)
        return refuse(download,
                      answer->commit[0] == '\0'
                          ? "the answer has no X-Repo-Commit: is HF_ENDPOINT a hub's?"
                          : "the answer is of another commit",
                      err);
    if (!hub_blob_is_etag(etag))
        return refuse(download, "the answer has no ETag that could name a file", err);
    bool is_hash = hub_reference_is_hex(etag, 64) || hub_reference_is_hex(etag, 40);
    const char *hash = is_hash ? etag : file->hash;
    if (file->hash[0] != '\0' && strcmp(hash, file->hash) != 0)
        return refuse(download, "its ETag is not the hash that the list of files has", err);
    if (bytes < 0 || (file->bytes >= 0 && bytes != file->bytes))
        return refuse(download, "its size is not known, or not that of the list of files", err);
    if (hash[0] == '\0')
        download->fetch->watcher->say(download->fetch->watcher->context, HUB_WARNING,
                                      "the hub has no hash of a file: only its size is checked");
    hub_blob_init(&download->blob, download->fetch->cache, etag, hash, bytes);
    download->retry = (struct retry){0};
    download->stage = LOCKING;
    return 0;
}

/* --- Its content --- */

static int begin_body(struct download *download, struct error *err) {
    const struct hub_answer *answer = &download->request.answer;
    struct hub_blob *blob = &download->blob;
    int64_t from = answer->status == 206 ? answer->range_begin : 0;
    bool is_other =
        answer->status == 206
            ? from != blob->have || (answer->range_total >= 0 && answer->range_total != blob->bytes)
            : answer->content_bytes >= 0 && answer->content_bytes != blob->bytes;
    char line[200];
    if (is_other) {
        snprintf(line, sizeof(line),
                 "%" PRId64 " bytes are sent from byte %" PRId64 ", and not the %" PRId64
                 " that the hub has, from byte %" PRId64,
                 answer->content_bytes, from, blob->bytes, blob->have);
        return refuse(download, line, err);
    }
    return from < blob->have ? hub_blob_restart(blob, err) : 0;
}

static int take_bytes(struct download *download, const void *data, size_t length,
                      struct error *err) {
    struct hub_blob *blob = &download->blob;
    if (!download->has_body && begin_body(download, err) != 0)
        return -1;
    download->has_body = true;
    int status = hub_blob_append(blob, data, length, err);
    if (status > 0)
        return refuse(download, "more bytes are sent than the hub says it has", err);
    download->fetch->fetched_bytes += (int64_t)length;
    if (blob->have > download->most_bytes) {
        download->most_bytes = blob->have;
        download->retry.num_failures = 0;
    }
    return status;
}

static bool take(void *context, const void *data, size_t length) {
    struct download *download = context;
    return take_bytes(download, data, length, download->problem) == 0;
}

static int link_file(struct download *download, struct error *err) {
    int status = hub_cache_link(download->fetch->cache, download->commit, download->file->name,
                                download->blob.etag, err);
    hub_blob_finish(&download->blob);
    download->stage = HERE;
    return status;
}

static int complete(struct download *download, struct error *err) {
    switch (hub_blob_complete(&download->blob, err)) {
    case HUB_BLOB_IS_DONE:
        return link_file(download, err);
    case HUB_BLOB_FAILED:
        return -1;
    default:
        if (++download->num_bad == MAX_BAD)
            return refuse(
                download,
                "the download has another hash than the hub names: it was removed; try again", err);
        download->stage = HASHING;
        return hub_blob_open(&download->blob, err);
    }
}

/* --- Stages --- */

static void say_wait(struct download *download) {
    const struct hub_watcher *watcher = download->fetch->watcher;
    char line[HUB_FILE_NAME_BYTES + 64];
    snprintf(line, sizeof(line), "waiting    for %.200s, which is being fetched already",
             download->file->name);
    if (!download->is_known_to_wait)
        watcher->say(watcher->context, HUB_LINE, line);
    download->is_known_to_wait = true;
}

static int try_lock(struct download *download, struct error *err) {
    struct hub_blob *blob = &download->blob;
    int locked = hub_blob_is_there(blob) ? 1 : hub_blob_lock(blob, err);
    if (locked < 0)
        return -1;
    if (hub_blob_is_there(blob))
        return link_file(download, err);
    if (locked == 0) {
        say_wait(download);
        return 0;
    }
    download->stage = HASHING;
    return hub_blob_open(blob, err);
}

static int hash_more(struct download *download, struct error *err) {
    struct hub_blob *blob = &download->blob;
    int status = hub_blob_hash_kept(blob, err);
    if (status <= 0)
        return status;
    download->most_bytes = blob->have;
    if (blob->have == blob->bytes)
        return complete(download, err);
    download->stage = GETTING;
    return start_request(download, false, err);
}

/* Goes on as far as it can now. */
static int download_step(struct download *download, int64_t now_ms, struct error *err) {
    bool is_running = download->request.exchange != NULL;
    if (now_ms < download->retry.not_before_ms)
        return 0;
    switch (download->stage) {
    case ASKING:
        return is_running ? 0 : start_request(download, true, err);
    case LOCKING:
        return try_lock(download, err);
    case HASHING:
        return hash_more(download, err);
    case GETTING:
        return is_running ? 0 : start_request(download, false, err);
    default:
        return 0;
    }
}

static int take_content_end(struct download *download, int64_t now_ms, struct error *err) {
    struct hub_request *request = &download->request;
    struct hub_blob *blob = &download->blob;
    if (request->is_declined) {
        *err = *download->problem;
        return -1;
    }
    if (request->failure[0] == '\0' && request->answer.status == 416) {
        snprintf(request->failure, sizeof(request->failure), "it does not resume where it stopped");
        if (hub_blob_restart(blob, err) != 0)
            return -1;
    }
    if (request->failure[0] == '\0' && request->answer.status / 100 == 2) {
        if (blob->have == blob->bytes)
            return complete(download, err);
        snprintf(request->failure, sizeof(request->failure),
                 "it ended after %" PRId64 " of %" PRId64 " bytes", blob->have, blob->bytes);
    }
    return try_again(download, now_ms, err);
}

/* Takes the end of its request. */
static int download_take_end(struct download *download, int64_t now_ms, struct error *err) {
    const struct hub_request *request = &download->request;
    int status = request->answer.status;
    if (download->stage == GETTING)
        return take_content_end(download, now_ms, err);
    if (request->failure[0] == '\0' && (status / 100 == 2 || status / 100 == 3))
        return take_answer(download, err);
    return try_again(download, now_ms, err);
}

/* Returns the bytes that are there, from LOCKING on. */
static int64_t download_bytes(const struct download *download) {
    if (download->stage == HERE)
        return download->blob.bytes;
    return download->stage == LOCKING ? hub_blob_partial_bytes(&download->blob)
                                      : download->blob.have;
}

static int check_stop(const struct hub_fetch *fetch, struct error *err) {
    const struct hub_watcher *watcher = fetch->watcher;
    if (!watcher->stops(watcher->context))
        return 0;
    return error_set(
        err, ERROR_INTERRUPTED,
        "%s: interrupted; the downloaded part is kept, and the same command resumes it",
        fetch->reference->repository);
}

/* --- The list of files --- */

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
    struct retry retry = {0};
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
            status = decide_retry(&retry, fetch, request, &subject, clock_now_ms(), err);
    }
    if (status == 0)
        status = read_listing(fetch, request, &json, out, err);
    byte_buffer_finish(&json);
    free(request);
    return status;
}

/* --- Files --- */

struct downloads {
    struct hub_fetch *fetch;
    struct download *items;
    size_t count;
    int64_t num_bytes;
    struct hub_progress progress;
    struct error problem; /* of a body that came */
};

static int64_t bytes_here(const struct downloads *all) {
    int64_t sum = 0;
    for (size_t i = 0; i < all->count; i++)
        sum += download_bytes(&all->items[i]);
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

/* Lets the first few that are not finished continue; returns their number. */
static int step_all(struct downloads *all, enum stage goal, bool *out_hashes, struct error *err) {
    int num_active = 0;
    *out_hashes = false;
    for (size_t i = 0; i < all->count && num_active < MAX_AT_ONCE; i++) {
        struct download *download = &all->items[i];
        if (download->stage >= goal)
            continue;
        if (download_step(download, clock_now_ms(), err) != 0)
            return -1;
        num_active += download->stage < goal;
        *out_hashes |= download->stage == HASHING;
    }
    return num_active;
}

static int take_ends(struct downloads *all, int timeout_ms, struct error *err) {
    struct hub_request *request;
    while ((request = hub_http_wait(all->fetch->http, timeout_ms)) != NULL) {
        if (download_take_end(request->context, clock_now_ms(), err) != 0)
            return -1;
        timeout_ms = 0;
    }
    return 0;
}

static int run(struct downloads *all, enum stage goal, struct error *err) {
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
    if (hub_cache_prepare(all->fetch->cache, err) != 0 || run(all, LOCKING, err) != 0 ||
        check_room(all, err) != 0)
        return -1;
    hub_progress_start(&all->progress, bytes_here(all), clock_now_ns(),
                       all->fetch->watcher->is_terminal);
    say_begin(all, commit);
    if (run(all, HERE, err) != 0)
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
        download_init(&all.items[i], fetch, files[i], commit, &all.problem);
    int status = fetch_all(&all, commit, err);
    for (size_t i = 0; i < num_files; i++)
        download_finish(&all.items[i]);
    free(all.items);
    return status;
}
