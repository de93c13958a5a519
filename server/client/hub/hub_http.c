#include "server/client/hub/hub_http.h"

#include "config/base/check.h"
#include "config/base/text.h"
#include "server/client/hub/hub_listing.h"
#include "server/net/http_client.h"

#include <ctype.h>
#include <curl/curl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* --- Answers --- */

void hub_answer_clear(struct hub_answer *answer) {
    *answer = (struct hub_answer){.content_bytes = -1,
                                  .linked_bytes = -1,
                                  .range_begin = -1,
                                  .range_total = -1,
                                  .retry_after_s = -1};
}

static void copy_value(struct text value, char out[static HUB_FIELD_BYTES]) {
    if (value.length < HUB_FIELD_BYTES) {
        memcpy(out, value.data, value.length);
        out[value.length] = '\0';
    }
}

/* Reads digits up to HUB_MAX_FILE_BYTES; -1: something else. Returns the place after them. */
static struct text take_number(struct text value, int64_t *out) {
    int64_t number = 0;
    size_t i = 0;
    for (; i < value.length && isdigit((unsigned char)value.data[i]); i++) {
        number = 10 * number + (value.data[i] - '0');
        if (number > HUB_MAX_FILE_BYTES)
            number = HUB_MAX_FILE_BYTES + 1;
    }
    *out = i > 0 && number <= HUB_MAX_FILE_BYTES ? number : -1;
    return (struct text){value.data + i, value.length - i};
}

static void read_number(struct text value, int64_t *out) {
    if (take_number(value, out).length > 0)
        *out = -1;
}

/* "bytes 100-199/200" (RFC 9110, section 14.4). */
static void read_range(struct text value, struct hub_answer *answer) {
    static const char unit[] = "bytes ";
    int64_t begin, last, total;
    size_t length = strlen(unit);
    if (value.length < length || strncasecmp(value.data, unit, length) != 0)
        return;
    struct text rest =
        take_number((struct text){value.data + length, value.length - length}, &begin);
    if (begin < 0 || rest.length == 0 || rest.data[0] != '-')
        return;
    rest = take_number((struct text){rest.data + 1, rest.length - 1}, &last);
    if (last < begin || rest.length == 0 || rest.data[0] != '/')
        return;
    read_number((struct text){rest.data + 1, rest.length - 1}, &total);
    answer->range_begin = begin;
    answer->range_total = total;
}

static void read_field(struct hub_answer *answer, struct text name, struct text value) {
    const struct {
        const char *name;
        char *text;
        int64_t *number;
    } fields[] = {
        {"ETag", answer->etag, NULL},
        {"X-Linked-Etag", answer->linked_etag, NULL},
        {"X-Repo-Commit", answer->commit, NULL},
        {"X-Error-Code", answer->error_code, NULL},
        {"X-Error-Message", answer->error_message, NULL},
        {"Content-Length", NULL, &answer->content_bytes},
        {"X-Linked-Size", NULL, &answer->linked_bytes},
        {"Retry-After", NULL, &answer->retry_after_s},
    };
    if (name.length == 13 && strncasecmp(name.data, "Content-Range", 13) == 0)
        read_range(value, answer);
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        if (name.length != strlen(fields[i].name) ||
            strncasecmp(name.data, fields[i].name, name.length) != 0)
            continue;
        if (fields[i].text != NULL)
            copy_value(value, fields[i].text);
        else
            read_number(value, fields[i].number);
    }
}

static struct text trim(struct text value) {
    while (value.length > 0 && isspace((unsigned char)value.data[0]))
        value = (struct text){value.data + 1, value.length - 1};
    while (value.length > 0 && isspace((unsigned char)value.data[value.length - 1]))
        value.length--;
    return value;
}

void hub_answer_read_line(struct hub_answer *answer, const char *line, size_t length) {
    if (length >= 5 && strncasecmp(line, "HTTP/", 5) == 0) {
        const char *space = memchr(line, ' ', length);
        int64_t status = -1;
        hub_answer_clear(answer);
        if (space != NULL)
            take_number((struct text){space + 1, length - (size_t)(space + 1 - line)}, &status);
        answer->status = status >= 100 && status <= 999 ? (int)status : 0;
        return;
    }
    const char *colon = memchr(line, ':', length);
    if (colon == NULL)
        return;
    size_t name = (size_t)(colon - line);
    read_field(answer, (struct text){line, name},
               trim((struct text){colon + 1, length - name - 1}));
}

/* As huggingface_hub's _normalize_etag. */
void hub_answer_normalise_etag(const char *etag, char out[static HUB_FIELD_BYTES]) {
    etag += strspn(etag, "W/");
    etag += strspn(etag, "\"");
    snprintf(out, HUB_FIELD_BYTES, "%s", etag);
    size_t length = strlen(out);
    while (length > 0 && out[length - 1] == '"')
        out[--length] = '\0';
}

/* --- The meaning of failed answers --- */

bool hub_answer_may_retry(const struct hub_request *request) {
    int status = request->answer.status;
    if (request->is_refused || request->is_declined)
        return false;
    return request->failure[0] != '\0' || status == 408 || status == 429 || status / 100 == 5;
}

static int refuse_gated(const struct hub_subject *s, struct error *err) {
    if (s->has_token)
        return error_set(err, ERROR_CONFIG,
                         "%s: is gated, and the account of this token may not read it: ask for "
                         "access at %s/%s",
                         s->repository, s->endpoint, s->repository);
    return error_set(err, ERROR_CONFIG,
                     "%s: is gated: accept its conditions at %s/%s and give a token of that "
                     "account in HF_TOKEN",
                     s->repository, s->endpoint, s->repository);
}

/* The hub answers alike for what does not exist and what is private. */
static int refuse_repository(const struct hub_subject *s, struct error *err) {
    return error_set(
        err, ERROR_CONFIG, "%s: %s has no such model, or it is private%s: compare the name",
        s->repository, s->endpoint,
        s->has_token ? " and not this token's to read" : " and needs a token in HF_TOKEN");
}

static int refuse_access(const struct hub_answer *answer, const struct hub_subject *s,
                         struct error *err) {
    if (strcmp(answer->error_code, "GatedRepo") == 0)
        return refuse_gated(s, err);
    if (strcasestr(answer->error_message, "invalid credentials") != NULL ||
        (s->has_token && answer->status == 401 && answer->error_code[0] == '\0'))
        return error_set(err, ERROR_CONFIG,
                         "%s: %s does not take this token: make another one, or unset HF_TOKEN "
                         "(and remove the file of HF_TOKEN_PATH)",
                         s->repository, s->endpoint);
    if (answer->status == 401 || strcmp(answer->error_code, "RepoNotFound") == 0)
        return refuse_repository(s, err);
    return error_set(err, ERROR_CONFIG, "%s: %s refuses it%s%.150s", s->repository, s->endpoint,
                     answer->error_message[0] != '\0' ? ": " : "", answer->error_message);
}

static int refuse_missing(const struct hub_answer *answer, const struct hub_subject *s,
                          struct error *err) {
    if (strcmp(answer->error_code, "RepoNotFound") == 0)
        return refuse_repository(s, err);
    if (strcmp(answer->error_code, "RevisionNotFound") == 0)
        return error_set(err, ERROR_CONFIG,
                         "%s: has no revision '%.100s': no branch, tag or commit", s->repository,
                         s->revision);
    if (strcmp(answer->error_code, "EntryNotFound") == 0 && s->file != NULL)
        return error_set(err, ERROR_CONFIG, "%s: has no file '%.200s'", s->repository, s->file);
    return error_set(err, ERROR_CONFIG,
                     "%s: %s answers 404 without a reason: is HF_ENDPOINT a hub's?", s->repository,
                     s->endpoint);
}

int hub_answer_refuse(const struct hub_request *request, const struct hub_subject *s,
                      struct error *err) {
    const struct hub_answer *answer = &request->answer;
    const char *of = s->file != NULL ? s->file : "the list of files";
    if (request->failure[0] != '\0')
        return error_set(err, ERROR_UNAVAILABLE, "%s: %.200s from %s: %s", s->repository, of,
                         s->endpoint, request->failure);
    if (answer->status == 401 || answer->status == 403)
        return refuse_access(answer, s, err);
    if (answer->status == 404)
        return refuse_missing(answer, s, err);
    if (answer->status == 429)
        return error_set(err, ERROR_UNAVAILABLE,
                         "%s: %s has had too many requests: try again later%s", s->repository,
                         s->endpoint, s->has_token ? "" : ", or with a token in HF_TOKEN");
    return error_set(err, ERROR_UNAVAILABLE, "%s: %.200s from %s: status %d%s%.100s", s->repository,
                     of, s->endpoint, answer->status, answer->error_message[0] != '\0' ? ": " : "",
                     answer->error_message);
}

/* --- Requests --- */

#define MAX_REDIRECTS 5
#define RECEIVED_AT_ONCE (256L << 10)
#define MAX_IGNORED_BYTES ((size_t)1 << 20) /* of a body that nobody wants */

/* Where a URL leads: what a token is meant for. */
struct origin {
    char scheme[16], host[256], port[8];
};

struct hub_http {
    const struct hub_settings *settings;
    struct origin endpoint;
    CURLM *multi;
};

struct hub_exchange {
    const struct hub_http *http;
    struct hub_request *request;
    CURL *easy;
    struct curl_slist *fields;
    char url[HUB_URL_BYTES]; /* of this hop */
    struct origin origin;
    int num_redirects;
    size_t num_ignored;
    char detail[CURL_ERROR_SIZE]; /* libcurl's words */
};

/* --- URLs --- */

static bool copy_part(CURLU *url, CURLUPart part, char *out, size_t capacity) {
    char *text = NULL;
    unsigned flags = part == CURLUPART_PORT ? CURLU_DEFAULT_PORT : 0;
    bool fits = curl_url_get(url, part, &text, flags) == CURLUE_OK && strlen(text) < capacity;
    if (fits)
        snprintf(out, capacity, "%s", text);
    curl_free(text);
    return fits;
}

/* Reads a URL, or one relative to `base`, into the two. Neither a user's name nor any scheme but
 * http and https is one. */
static bool read_url(const char *base, const char *text, char out[static HUB_URL_BYTES],
                     struct origin *origin) {
    CURLU *url = curl_url();
    bool is_read = url != NULL &&
                   (base == NULL || curl_url_set(url, CURLUPART_URL, base, 0) == CURLUE_OK) &&
                   curl_url_set(url, CURLUPART_URL, text, CURLU_DISALLOW_USER) == CURLUE_OK &&
                   copy_part(url, CURLUPART_SCHEME, origin->scheme, sizeof(origin->scheme)) &&
                   copy_part(url, CURLUPART_HOST, origin->host, sizeof(origin->host)) &&
                   copy_part(url, CURLUPART_PORT, origin->port, sizeof(origin->port)) &&
                   copy_part(url, CURLUPART_URL, out, HUB_URL_BYTES);
    curl_url_cleanup(url);
    return is_read &&
           (strcasecmp(origin->scheme, "http") == 0 || strcasecmp(origin->scheme, "https") == 0);
}

static bool is_same(const struct origin *a, const struct origin *b) {
    return strcasecmp(a->scheme, b->scheme) == 0 && strcasecmp(a->host, b->host) == 0 &&
           strcmp(a->port, b->port) == 0;
}

void hub_http_append_escaped(struct byte_buffer *url, const char *text, bool keeps_slashes) {
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;
        if ((c < 0x80 && isalnum(c)) || strchr("-._~", c) != NULL || (c == '/' && keeps_slashes))
            byte_buffer_append(url, text, 1);
        else
            byte_buffer_printf(url, "%%%02X", c);
    }
}

/* --- One exchange --- */

static size_t take_field(char *line, size_t size, size_t count, void *context) {
    struct hub_exchange *exchange = context;
    hub_answer_read_line(&exchange->request->answer, line, size * count);
    return size * count;
}

static size_t take_body(char *data, size_t size, size_t count, void *context) {
    struct hub_exchange *exchange = context;
    struct hub_request *request = exchange->request;
    size_t length = size * count;
    if (request->take != NULL && request->answer.status / 100 == 2) {
        request->is_declined = !request->take(request->context, data, length);
        return request->is_declined ? 0 : length;
    }
    exchange->num_ignored += length;
    return exchange->num_ignored > MAX_IGNORED_BYTES ? 0 : length;
}

static bool add_field(struct hub_exchange *exchange, const char *line) {
    struct curl_slist *longer = curl_slist_append(exchange->fields, line);
    if (longer == NULL)
        return false;
    exchange->fields = longer;
    return true;
}

static bool add_fields(struct hub_exchange *exchange) {
    const struct hub_http *http = exchange->http;
    char line[HUB_TOKEN_BYTES + 64];
    if (exchange->request->range_begin > 0) {
        snprintf(line, sizeof(line), "Range: bytes=%lld-",
                 (long long)exchange->request->range_begin);
        if (!add_field(exchange, line))
            return false;
    }
    if (http->settings->token[0] == '\0' || !is_same(&exchange->origin, &http->endpoint))
        return true;
    snprintf(line, sizeof(line), "Authorization: Bearer %s", http->settings->token);
    bool is_added = add_field(exchange, line);
    explicit_bzero(line, sizeof(line));
    return is_added;
}

#define SET(option, value) (curl_easy_setopt(exchange->easy, option, value) == CURLE_OK)

/* Sets what holds for every hop. */
static bool set_up(struct hub_exchange *exchange) {
    const struct hub_settings *settings = exchange->http->settings;
    bool is_small = exchange->request->is_head || exchange->request->is_small;
    exchange->easy = curl_easy_init();
    return exchange->easy != NULL && SET(CURLOPT_PRIVATE, exchange) &&
           SET(CURLOPT_ERRORBUFFER, exchange->detail) && http_client_restrict(exchange->easy) &&
           SET(CURLOPT_FOLLOWLOCATION, 0L) && SET(CURLOPT_NOSIGNAL, 1L) &&
           SET(CURLOPT_NOBODY, exchange->request->is_head ? 1L : 0L) &&
           SET(CURLOPT_HEADERFUNCTION, take_field) && SET(CURLOPT_HEADERDATA, exchange) &&
           SET(CURLOPT_WRITEFUNCTION, take_body) && SET(CURLOPT_WRITEDATA, exchange) &&
           SET(CURLOPT_BUFFERSIZE, RECEIVED_AT_ONCE) &&
           SET(CURLOPT_USERAGENT, "quire/" QUIRE_VERSION) &&
           (settings->ca_file[0] == '\0' || SET(CURLOPT_CAINFO, settings->ca_file)) &&
           SET(CURLOPT_CONNECTTIMEOUT, settings->connect_s) &&
           SET(CURLOPT_TIMEOUT,
               is_small ? settings->connect_s + HUB_MAX_SMALL * settings->stall_s : 0L) &&
           SET(CURLOPT_LOW_SPEED_LIMIT, HUB_MIN_SPEED) &&
           SET(CURLOPT_LOW_SPEED_TIME, settings->stall_s);
}

/* Sets what is specific to a hop: the URL, and the fields that go to its host. */
static bool set_hop(struct hub_exchange *exchange) {
    curl_slist_free_all(exchange->fields);
    exchange->fields = NULL;
    exchange->num_ignored = 0;
    hub_answer_clear(&exchange->request->answer);
    return add_fields(exchange) && SET(CURLOPT_HTTPHEADER, exchange->fields) &&
           SET(CURLOPT_URL, exchange->url) &&
           curl_multi_add_handle(exchange->http->multi, exchange->easy) == CURLM_OK;
}

static void release(struct hub_exchange *exchange) {
    exchange->request->exchange = NULL;
    if (exchange->easy != NULL) {
        curl_multi_remove_handle(exchange->http->multi, exchange->easy);
        curl_easy_cleanup(exchange->easy);
    }
    curl_slist_free_all(exchange->fields);
    free(exchange);
}

int hub_http_start(struct hub_http *http, struct hub_request *request, struct error *err) {
    struct hub_exchange *exchange = calloc(1, sizeof(*exchange));
    request->failure[0] = '\0';
    request->is_refused = request->is_declined = false;
    if (exchange != NULL) {
        *exchange = (struct hub_exchange){.http = http, .request = request};
        request->exchange = exchange;
        if (read_url(NULL, request->url, exchange->url, &exchange->origin) && set_up(exchange) &&
            set_hop(exchange))
            return 0;
        release(exchange);
    }
    return error_set(err, ERROR_MEMORY, "no memory for a request to the hub");
}

void hub_http_cancel(struct hub_http *http, struct hub_request *request) {
    if (request->exchange != NULL)
        release(request->exchange);
}

/* --- Redirects --- */

__attribute__((format(printf, 2, 3))) static bool refuse(struct hub_request *request,
                                                         const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(request->failure, sizeof(request->failure), format, arguments);
    va_end(arguments);
    request->is_refused = true;
    return false;
}

/* A HEAD request wants what the hub says of a file, and not what the host says that has its
 * content (huggingface_hub, get_hf_file_metadata): it goes elsewhere only where the hub says
 * nothing. */
static bool is_answered(const struct hub_exchange *exchange, const struct origin *next) {
    const struct hub_request *request = exchange->request;
    return request->is_head && request->answer.commit[0] != '\0' &&
           !is_same(next, &exchange->origin);
}

/* Returns whether another hop has been started. */
static bool follow(struct hub_exchange *exchange) {
    struct hub_request *request = exchange->request;
    char *location = NULL, from[HUB_URL_BYTES];
    struct origin next;
    if (request->answer.status / 100 != 3 ||
        curl_easy_getinfo(exchange->easy, CURLINFO_REDIRECT_URL, &location) != CURLE_OK ||
        location == NULL)
        return false;
    snprintf(from, sizeof(from), "%s", exchange->url);
    if (!read_url(from, location, exchange->url, &next))
        return refuse(request, "redirects to an address that is not an http or https URL");
    if (is_answered(exchange, &next))
        return false;
    if (strcasecmp(exchange->origin.scheme, "https") == 0 && strcasecmp(next.scheme, "https") != 0)
        return refuse(request, "redirects from https to http (%.100s), which is refused",
                      next.host);
    if (++exchange->num_redirects > MAX_REDIRECTS)
        return refuse(request, "redirects more than %d times", MAX_REDIRECTS);
    exchange->origin = next;
    curl_multi_remove_handle(exchange->http->multi, exchange->easy);
    return set_hop(exchange) || refuse(request, "no memory for a redirect");
}

/* --- All of them --- */

int hub_http_create(const struct hub_settings *settings, struct hub_http **out, struct error *err) {
    char url[HUB_URL_BYTES];
    struct hub_http *http = calloc(1, sizeof(*http));
    if (http != NULL && curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK)
        http->multi = curl_multi_init();
    if (http == NULL || http->multi == NULL) {
        free(http);
        return error_set(err, ERROR_MEMORY, "no memory to talk to the hub");
    }
    http->settings = settings;
    if (!read_url(NULL, settings->endpoint, url, &http->endpoint)) {
        hub_http_destroy(http);
        return error_set(err, ERROR_CONFIG, "HF_ENDPOINT: is not a valid hub URL");
    }
    /* One connection for each file, also where HTTP/2 could have one for all: they add up. */
    curl_multi_setopt(http->multi, CURLMOPT_PIPELINING, CURLPIPE_NOTHING);
    *out = http;
    return 0;
}

void hub_http_destroy(struct hub_http *http) {
    if (http == NULL)
        return;
    curl_multi_cleanup(http->multi);
    curl_global_cleanup();
    free(http);
}

/* Ends the exchange; the request says how. */
static struct hub_request *end(struct hub_exchange *exchange, CURLcode code) {
    struct hub_request *request = exchange->request;
    const char *detail = exchange->detail[0] != '\0' ? exchange->detail : curl_easy_strerror(code);
    bool is_untrusted = code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE;
    if (code == CURLE_OPERATION_TIMEDOUT)
        detail = "no answer, or too little of it, in time";
    if (code != CURLE_OK && request->failure[0] == '\0')
        snprintf(request->failure, sizeof(request->failure), "%.120s%s", detail,
                 is_untrusted ? "; install ca-certificates, or set SSL_CERT_FILE" : "");
    request->is_refused |=
        code == CURLE_UNSUPPORTED_PROTOCOL || code == CURLE_URL_MALFORMAT || is_untrusted;
    release(exchange);
    return request;
}

static struct hub_request *next_ended(struct hub_http *http) {
    int num_left;
    for (CURLMsg *message; (message = curl_multi_info_read(http->multi, &num_left)) != NULL;) {
        struct hub_exchange *exchange;
        CURLcode code = message->data.result;
        if (message->msg != CURLMSG_DONE)
            continue;
        CHECK(curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &exchange) == CURLE_OK);
        if (code != CURLE_OK || !follow(exchange))
            return end(exchange, code);
    }
    return NULL;
}

struct hub_request *hub_http_wait(struct hub_http *http, int timeout_ms) {
    int num_running;
    struct hub_request *request = next_ended(http);
    if (request == NULL && curl_multi_poll(http->multi, NULL, 0, timeout_ms, NULL) == CURLM_OK &&
        curl_multi_perform(http->multi, &num_running) == CURLM_OK)
        request = next_ended(http);
    return request;
}
