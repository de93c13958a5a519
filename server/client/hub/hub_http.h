/* HTTP requests to a hub and to where it redirects, several at once, by libcurl's multi interface
 * in one thread.
 *
 * Redirects are followed here and not by libcurl: the token goes to requests whose scheme, host and
 * port are the endpoint's and to no other, https never becomes http, and only these two schemes are
 * spoken. A body slower than HUB_MIN_SPEED over HF_HUB_DOWNLOAD_TIMEOUT is given up; so is a small
 * answer, including its header, after the time to connect plus HUB_MAX_SMALL of these timeouts.
 * Nothing here writes a header or a token into a message. */
#ifndef QUIRE_SERVER_CLIENT_HUB_HUB_HTTP_H
#define QUIRE_SERVER_CLIENT_HUB_HUB_HTTP_H

#include "config/base/byte_buffer.h"
#include "server/client/hub/hub_settings.h"

#include <stdint.h>

#define HUB_URL_BYTES 8192
#define HUB_FIELD_BYTES 256
#define HUB_MIN_SPEED 1024L /* bytes per second */
#define HUB_MAX_SMALL 4

/* The fields of an answer's header; "" and -1: not given. */
struct hub_answer {
    int status;
    char etag[HUB_FIELD_BYTES], linked_etag[HUB_FIELD_BYTES];         /* as sent */
    char commit[HUB_FIELD_BYTES];                                     /* X-Repo-Commit */
    char error_code[HUB_FIELD_BYTES], error_message[HUB_FIELD_BYTES]; /* X-Error-... */
    int64_t content_bytes, linked_bytes; /* Content-Length, X-Linked-Size */
    int64_t range_begin, range_total;    /* Content-Range */
    int64_t retry_after_s;
};

struct hub_http;
struct hub_exchange; /* its own */

struct hub_request {
    char url[HUB_URL_BYTES];
    bool is_head;
    bool is_small;       /* like a HEAD request: the complete answer is expected soon */
    int64_t range_begin; /* 0: from the beginning */
    /* Receives the body of a 200 or 206 piece by piece, when `answer` is complete; returns false to
     * end the request. NULL: the body is ignored. */
    bool (*take)(void *context, const void *data, size_t length);
    void *context;
    /* Once it has ended: */
    struct hub_answer answer;
    char failure[HUB_FIELD_BYTES]; /* why there is no complete answer; "": there is one */
    bool is_refused;               /* by a rule above: retrying cannot help */
    bool is_declined;              /* take returned false */
    struct hub_exchange *exchange; /* NULL: not running */
};

/* settings outlives it. Fails with ERROR_MEMORY, or ERROR_CONFIG when HF_ENDPOINT is not a URL. */
int hub_http_create(const struct hub_settings *settings, struct hub_http **out, struct error *err);
/* Ends what runs. Accepts NULL. */
void hub_http_destroy(struct hub_http *http);

/* Starts a request, which must not move in memory until it has ended. Fails with ERROR_MEMORY. */
int hub_http_start(struct hub_http *http, struct hub_request *request, struct error *err);
/* Ends it at once. */
void hub_http_cancel(struct hub_http *http, struct hub_request *request);
/* Waits for at most timeout_ms and returns a request that has ended, or NULL. */
struct hub_request *hub_http_wait(struct hub_http *http, int timeout_ms);

/* Appends text to a URL, with everything except letters, digits and -._~ as %XX; a slash that
 * separates parts is kept. */
void hub_http_append_escaped(struct byte_buffer *url, const char *text, bool keeps_slashes);

/* --- Answers: the header fields that Quire uses, read line by line (huggingface_hub, constants.py
 * and utils/_http.py), and the meaning of errors --- */

#define HUB_MAX_RETRY_AFTER_S 300

void hub_answer_clear(struct hub_answer *answer);
/* Reads one line of a header, with its end; a status line starts a new header. Invalid values and
 * those that do not fit count as not given. */
void hub_answer_read_line(struct hub_answer *answer, const char *line, size_t length);

/* Copies an entity tag without W/ and quotes, as the name of a blob. */
void hub_answer_normalise_etag(const char *etag, char out[static HUB_FIELD_BYTES]);

/* What was requested, for messages. */
struct hub_subject {
    const char *repository, *revision, *endpoint;
    const char *file; /* NULL: the list of files */
    bool has_token;
};

/* Returns whether a request that ended like this may be retried: it broke off, or the status is
 * 408, 429 or 5xx. */
bool hub_answer_may_retry(const struct hub_request *request);
/* Writes one line on why there is no (complete) answer and what to do: ERROR_CONFIG if the user
 * must change something, ERROR_UNAVAILABLE if the hub or the network failed. */
int hub_answer_refuse(const struct hub_request *request, const struct hub_subject *subject,
                      struct error *err);

#endif
