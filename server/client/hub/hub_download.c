#include "server/client/hub/hub_download.h"

#include "config/base/byte_buffer.h"
#include "server/client/hub/hub_answer.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Contents with another hash: the first may come of what an earlier run left. */
#define MAX_BAD 2

void hub_download_init(struct hub_download *download, struct hub_fetch *fetch,
                       const struct hub_file *file, const char *commit, struct error *problem) {
    *download =
        (struct hub_download){.fetch = fetch, .file = file, .commit = commit, .problem = problem};
    hub_blob_init(&download->blob, fetch->cache, "", "", 0);
}

void hub_download_finish(struct hub_download *download) {
    hub_http_cancel(download->fetch->http, &download->request);
    hub_blob_finish(&download->blob);
}

static const char *repository(const struct hub_download *download) {
    return download->fetch->reference->repository;
}

static struct hub_subject subject(const struct hub_download *download) {
    const struct hub_fetch *fetch = download->fetch;
    return (struct hub_subject){.repository = fetch->reference->repository,
                                .revision = fetch->reference->revision,
                                .endpoint = fetch->settings->endpoint,
                                .file = download->file->name,
                                .has_token = fetch->settings->token[0] != '\0'};
}

static int refuse(const struct hub_download *download, const char *what, struct error *err) {
    return error_set(err, ERROR_UNAVAILABLE, "%s: %.200s: %s", repository(download),
                     download->file->name, what);
}

/* --- Requests --------------------------------------------------------------------------------- */

static bool take(void *context, const void *data, size_t length);

/* Each file is asked for by its commit, so that no two parts are of different ones. */
static int start_request(struct hub_download *download, bool is_head, struct error *err) {
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

static int try_again(struct hub_download *download, int64_t now_ms, struct error *err) {
    struct hub_subject of = subject(download);
    return hub_retry_decide(&download->retry, download->fetch, &download->request, &of, now_ms,
                            err);
}

/* --- What the hub says of the file ------------------------------------------------------------ */

static int64_t said_bytes(const struct hub_answer *answer) {
    if (answer->linked_bytes >= 0)
        return answer->linked_bytes;
    return answer->status / 100 == 3 ? -1 : answer->content_bytes;
}

static bool is_hash(const char *text) {
    return hub_reference_is_hex(text, 64) || hub_reference_is_hex(text, 40);
}

/* The list of files and the file's own header must agree. */
static int take_answer(struct hub_download *download, struct error *err) {
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
    const char *hash = is_hash(etag) ? etag : file->hash;
    if (file->hash[0] != '\0' && strcmp(hash, file->hash) != 0)
        return refuse(download, "its ETag is not the hash that the list of files has", err);
    if (bytes < 0 || (file->bytes >= 0 && bytes != file->bytes))
        return refuse(download, "its size is not known, or not that of the list of files", err);
    if (hash[0] == '\0')
        download->fetch->watcher->say(download->fetch->watcher->context, HUB_WARNING,
                                      "the hub gives no hash of a file: its size alone is checked");
    hub_blob_init(&download->blob, download->fetch->cache, etag, hash, bytes);
    download->retry = (struct hub_retry){0};
    download->stage = HUB_LOCKING;
    return 0;
}

/* --- Its content ------------------------------------------------------------------------------ */

static int begin_body(struct hub_download *download, struct error *err) {
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

static int take_bytes(struct hub_download *download, const void *data, size_t length,
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
    struct hub_download *download = context;
    return take_bytes(download, data, length, download->problem) == 0;
}

static int link_file(struct hub_download *download, struct error *err) {
    int status = hub_cache_link(download->fetch->cache, download->commit, download->file->name,
                                download->blob.etag, err);
    hub_blob_finish(&download->blob);
    download->stage = HUB_HERE;
    return status;
}

static int complete(struct hub_download *download, struct error *err) {
    switch (hub_blob_complete(&download->blob, err)) {
    case HUB_BLOB_IS_DONE:
        return link_file(download, err);
    case HUB_BLOB_FAILED:
        return -1;
    default:
        if (++download->num_bad == MAX_BAD)
            return refuse(
                download,
                "what came has another hash than the hub names: it was removed; try again", err);
        download->stage = HUB_HASHING;
        return hub_blob_open(&download->blob, err);
    }
}

/* --- Stages ----------------------------------------------------------------------------------- */

static void say_wait(struct hub_download *download) {
    const struct hub_watcher *watcher = download->fetch->watcher;
    char line[HUB_FILE_NAME_BYTES + 64];
    snprintf(line, sizeof(line), "waiting    for %.200s, which is being fetched already",
             download->file->name);
    if (!download->is_known_to_wait)
        watcher->say(watcher->context, HUB_LINE, line);
    download->is_known_to_wait = true;
}

static int try_lock(struct hub_download *download, struct error *err) {
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
    download->stage = HUB_HASHING;
    return hub_blob_open(blob, err);
}

static int hash_more(struct hub_download *download, struct error *err) {
    struct hub_blob *blob = &download->blob;
    int status = hub_blob_hash_kept(blob, err);
    if (status <= 0)
        return status;
    download->most_bytes = blob->have;
    if (blob->have == blob->bytes)
        return complete(download, err);
    download->stage = HUB_GETTING;
    return start_request(download, false, err);
}

int hub_download_step(struct hub_download *download, int64_t now_ms, struct error *err) {
    bool is_running = download->request.exchange != NULL;
    if (now_ms < download->retry.not_before_ms)
        return 0;
    switch (download->stage) {
    case HUB_ASKING:
        return is_running ? 0 : start_request(download, true, err);
    case HUB_LOCKING:
        return try_lock(download, err);
    case HUB_HASHING:
        return hash_more(download, err);
    case HUB_GETTING:
        return is_running ? 0 : start_request(download, false, err);
    default:
        return 0;
    }
}

static int take_content_end(struct hub_download *download, int64_t now_ms, struct error *err) {
    struct hub_request *request = &download->request;
    struct hub_blob *blob = &download->blob;
    if (request->is_declined) {
        *err = *download->problem;
        return -1;
    }
    if (request->failure[0] == '\0' && request->answer.status == 416) {
        snprintf(request->failure, sizeof(request->failure),
                 "it does not go on where it broke off");
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

int hub_download_take_end(struct hub_download *download, int64_t now_ms, struct error *err) {
    const struct hub_request *request = &download->request;
    int status = request->answer.status;
    if (download->stage == HUB_GETTING)
        return take_content_end(download, now_ms, err);
    if (request->failure[0] == '\0' && (status / 100 == 2 || status / 100 == 3))
        return take_answer(download, err);
    return try_again(download, now_ms, err);
}

int64_t hub_download_bytes(const struct hub_download *download) {
    if (download->stage == HUB_HERE)
        return download->blob.bytes;
    return download->stage == HUB_LOCKING ? hub_blob_partial_bytes(&download->blob)
                                          : download->blob.have;
}
