#include "server/net/http_client.h"

#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define MAX_KEY_BYTES 255
#define KEEP_ALIVE_S 60L

/* A request under way. */
struct transfer {
    const struct http_client_request *request;
    struct http_answer answer;
    CURL *curl;
    struct curl_slist *fields;
    void (*done)(void *context, int status, struct http_answer *answer, const struct error *err);
    void *context; /* of done */
};

struct http_client {
    CURL *curl;
    struct transfer transfer;
    char why[CURL_ERROR_SIZE];
};

struct http_client_group {
    CURLM *multi;
    int num_running;
};

static int refuse_url(struct error *err, const char *why) {
    return error_set(err, ERROR_CONFIG,
                     "%s: http://HOST[:PORT][/PATH] or https://HOST[:PORT][/PATH] is allowed", why);
}

/* Copies a part of the URL, or all of it; one that is not there is "". */
static bool take_part(CURLU *handle, CURLUPart part, char *out, size_t capacity) {
    char *text = NULL;
    CURLUcode rc = curl_url_get(handle, part, &text, 0);
    int length = snprintf(out, capacity, "%s", rc == CURLUE_OK ? text : "");
    curl_free(text);
    return length >= 0 && (size_t)length < capacity;
}

static int refuse_parts(CURLU *handle, struct error *err) {
    static const CURLUPart refused[] = {CURLUPART_USER, CURLUPART_PASSWORD, CURLUPART_FRAGMENT};
    char text[HTTP_URL_BYTES];
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
        if (!take_part(handle, refused[i], text, sizeof(text)) || text[0] != '\0')
            return refuse_url(err, "a user's name, a password or a fragment");
    return 0;
}

static int split_url(CURLU *handle, struct http_url *out, struct error *err) {
    char query[HTTP_URL_BYTES];
    if (refuse_parts(handle, err) != 0)
        return -1;
    if (!take_part(handle, CURLUPART_PATH, out->path, sizeof(out->path)) ||
        !take_part(handle, CURLUPART_QUERY, query, sizeof(query)) ||
        strlen(out->path) + strlen(query) + 2 > sizeof(out->path))
        return refuse_url(err, "the path is too long");
    if (query[0] != '\0')
        strcat(strcat(out->path, "?"), query);
    else if (strcmp(out->path, "/") == 0)
        out->path[0] = '\0';
    if (curl_url_set(handle, CURLUPART_PATH, NULL, 0) != CURLUE_OK ||
        curl_url_set(handle, CURLUPART_QUERY, NULL, 0) != CURLUE_OK ||
        !take_part(handle, CURLUPART_URL, out->origin, sizeof(out->origin)))
        return refuse_url(err, "the host is too long");
    size_t length = strlen(out->origin);
    if (length > 0 && out->origin[length - 1] == '/')
        out->origin[length - 1] = '\0';
    return 0;
}

int http_url_parse(const char *text, struct http_url *out, struct error *err) {
    if (strlen(text) >= HTTP_URL_BYTES)
        return refuse_url(err, "longer than 2047 bytes");
    if (strncasecmp(text, "http://", 7) != 0 && strncasecmp(text, "https://", 8) != 0)
        return refuse_url(err, "no http:// or https:// at its beginning");
    CURLU *handle = curl_url();
    if (handle == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for a URL");
    CURLUcode rc = curl_url_set(handle, CURLUPART_URL, text, 0);
    int status = rc == CURLUE_OK ? split_url(handle, out, err) : refuse_url(err, "no URL");
    curl_url_cleanup(handle);
    return status;
}

struct http_client *http_client_create(void) {
    struct http_client *client = calloc(1, sizeof(*client));
    if (client == NULL)
        return NULL;
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
        free(client);
        return NULL;
    }
    client->curl = curl_easy_init();
    if (client->curl == NULL) {
        http_client_destroy(client);
        return NULL;
    }
    return client;
}

/* libcurl counts who uses it. */
void http_client_destroy(struct http_client *client) {
    if (client == NULL)
        return;
    curl_easy_cleanup(client->curl);
    curl_global_cleanup();
    free(client);
}

static size_t take_body(char *data, size_t one, size_t length, void *context) {
    struct transfer *transfer = context;
    const struct http_client_request *request = transfer->request;
    long status = 0;
    curl_easy_getinfo(transfer->curl, CURLINFO_RESPONSE_CODE, &status);
    if (request->take != NULL && status / 100 == 2) {
        transfer->answer.is_stopped = !request->take(request->context, data, length);
        return transfer->answer.is_stopped ? 0 : length;
    }
    byte_buffer_append(&transfer->answer.body, data, length);
    return transfer->answer.body.failed ? 0 : length;
}

static int look_for_stop(void *context, curl_off_t total, curl_off_t got, curl_off_t to_send,
                         curl_off_t sent) {
    struct transfer *transfer = context;
    struct http_answer *answer = &transfer->answer;
    answer->is_stopped |= transfer->request->is_stopped(transfer->request->context);
    return answer->is_stopped;
}

/* The texts are known since 7.85, and the numbers deprecated since. */
bool http_client_restrict(void *curl) {
#if LIBCURL_VERSION_NUM >= 0x075500
    return curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https") == CURLE_OK &&
           curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS_STR, "http,https") == CURLE_OK;
#else
    const long allowed = CURLPROTO_HTTP | CURLPROTO_HTTPS;
    return curl_easy_setopt(curl, CURLOPT_PROTOCOLS, allowed) == CURLE_OK &&
           curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS, allowed) == CURLE_OK;
#endif
}

/* As curl(1) does, in its order. */
static void set_authorities(CURL *curl) {
    const char *bundle = getenv("CURL_CA_BUNDLE");
    const char *folder = getenv("SSL_CERT_DIR"), *file = getenv("SSL_CERT_FILE");
    bool has_bundle = bundle != NULL && bundle[0] != '\0';
    if (!has_bundle && folder != NULL && folder[0] != '\0')
        curl_easy_setopt(curl, CURLOPT_CAPATH, folder);
    if (has_bundle || (file != NULL && file[0] != '\0'))
        curl_easy_setopt(curl, CURLOPT_CAINFO, has_bundle ? bundle : file);
}

static bool is_this_machine(const char *origin) {
    const char *host = strstr(origin, "://") + 3;
    size_t length = host[0] == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":");
    return strncmp(host, "127.", 4) == 0 || (length == 5 && strncmp(host, "[::1]", length) == 0) ||
           (length == 9 && strncmp(host, "localhost", length) == 0);
}

/* "Expect:" without a value: libcurl does not wait for leave to send a long body. */
static struct curl_slist *make_fields(const struct http_client_request *request) {
    struct curl_slist *list = curl_slist_append(NULL, "Expect:"), *longer = list;
    for (int i = 0; i < HTTP_CLIENT_MAX_FIELDS && request->fields[i] != NULL; i++) {
        longer = longer != NULL ? curl_slist_append(list, request->fields[i]) : NULL;
        list = list != NULL ? list : longer;
    }
    if (longer == NULL)
        curl_slist_free_all(list);
    return longer != NULL ? list : NULL;
}

static void set_body(CURL *curl, const struct http_client_request *request) {
    if (request->body == NULL)
        return;
    curl_easy_setopt(curl, CURLOPT_POST, 1L);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, request->body);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)request->body_bytes);
}

static void set_times(CURL *curl, const struct http_client_request *request) {
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)request->timeout_ms);
    if (request->connect_timeout_ms > 0)
        curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, (long)request->connect_timeout_ms);
    curl_easy_setopt(curl, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(curl, CURLOPT_TCP_KEEPIDLE, KEEP_ALIVE_S);
}

/* A request sets everything: what the last one set is gone, but for its connection. The first
 * failure would be one of memory, which the transfer meets as well. */
static void set_options(struct http_client *client, const struct http_client_request *request,
                        struct transfer *transfer) {
    CURL *curl = client->curl;
    curl_easy_reset(curl);
    client->why[0] = '\0';
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, client->why);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L); /* there may be other threads */
    http_client_restrict(curl);
    curl_easy_setopt(curl, CURLOPT_MAXCONNECTS, 1L);
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "quire/" QUIRE_VERSION);
    if (is_this_machine(request->url->origin))
        curl_easy_setopt(curl, CURLOPT_PROXY, "");
    curl_easy_setopt(curl, CURLOPT_UNIX_SOCKET_PATH, request->socket_path);
    set_authorities(curl);
    set_times(curl, request);
    set_body(curl, request);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take_body);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, transfer);
    if (request->is_stopped == NULL)
        return;
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, look_for_stop);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, transfer);
}

static int explain(struct http_client *client, const struct transfer *transfer, CURLcode rc,
                   struct error *err) {
    const char *origin = transfer->request->url->origin;
    const char *why = client->why[0] != '\0' ? client->why : curl_easy_strerror(rc);
    long number = 0;
    curl_easy_getinfo(client->curl, CURLINFO_OS_ERRNO, &number);
    if (transfer->answer.body.is_full)
        return error_set(err, ERROR_IO, "%.200s: the answer is longer than %zu bytes", origin,
                         transfer->request->max_answer_bytes);
    switch (rc) {
    case CURLE_COULDNT_CONNECT:
        return error_set(err, ERROR_IO, "%.200s: cannot connect: %s", origin,
                         number != 0 ? strerror((int)number) : why);
    case CURLE_OPERATION_TIMEDOUT:
        return error_set(err, ERROR_IO, "%.200s: no answer in time", origin);
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
        return error_set(err, ERROR_IO,
                         "%.200s: its certificate is refused: %.200s (CURL_CA_BUNDLE names a file "
                         "of authorities)",
                         origin, why);
    default:
        return error_set(err, ERROR_IO, "%.200s: no whole answer: %.200s", origin, why);
    }
}

static void take_facts(CURL *curl, struct http_answer *answer) {
    long status = 0;
    curl_off_t retry_after_s = 0;
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_getinfo(curl, CURLINFO_RETRY_AFTER, &retry_after_s);
    answer->status = (int)status;
    answer->retry_after_s = retry_after_s;
}

static int begin(struct http_client *client, const struct http_client_request *request,
                 struct error *err) {
    char url[2 * HTTP_URL_BYTES];
    struct transfer *transfer = &client->transfer;
    *transfer = (struct transfer){.request = request,
                                  .answer.body.max_length = request->max_answer_bytes,
                                  .curl = client->curl,
                                  .fields = make_fields(request)};
    if (transfer->fields == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for a request");
    set_options(client, request, transfer);
    snprintf(url, sizeof(url), "%s%s", request->url->origin, request->path);
    curl_easy_setopt(client->curl, CURLOPT_URL, url);
    curl_easy_setopt(client->curl, CURLOPT_HTTPHEADER, transfer->fields);
    curl_easy_setopt(client->curl, CURLOPT_PRIVATE, client);
    return 0;
}

/* Leaves the answer in the transfer; returns as http_client_send does. */
static int end(struct http_client *client, CURLcode rc, struct error *err) {
    struct transfer *transfer = &client->transfer;
    take_facts(client->curl, &transfer->answer);
    int status =
        rc == CURLE_OK || transfer->answer.is_stopped ? 0 : explain(client, transfer, rc, err);
    curl_slist_free_all(transfer->fields);
    transfer->fields = NULL;
    if (status != 0)
        byte_buffer_finish(&transfer->answer.body);
    return status;
}

int http_client_send(struct http_client *client, const struct http_client_request *request,
                     struct http_answer *out, struct error *err) {
    if (begin(client, request, err) != 0)
        return -1;
    int status = end(client, curl_easy_perform(client->curl), err);
    if (status == 0)
        *out = client->transfer.answer;
    return status;
}

struct http_client_group *http_client_group_create(void) {
    struct http_client_group *group = calloc(1, sizeof(*group));
    if (group == NULL)
        return NULL;
    group->multi = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK ? curl_multi_init() : NULL;
    if (group->multi != NULL)
        return group;
    free(group);
    return NULL;
}

void http_client_group_destroy(struct http_client_group *group) {
    if (group == NULL)
        return;
    curl_multi_cleanup(group->multi);
    curl_global_cleanup();
    free(group);
}

int http_client_group_start(struct http_client_group *group, struct http_client *client,
                            const struct http_client_request *request,
                            void (*done)(void *context, int status, struct http_answer *answer,
                                         const struct error *err),
                            void *context) {
    struct error err;
    if (begin(client, request, &err) != 0)
        return -1;
    client->transfer.done = done;
    client->transfer.context = context;
    if (curl_multi_add_handle(group->multi, client->curl) == CURLM_OK) {
        group->num_running++;
        return 0;
    }
    curl_slist_free_all(client->transfer.fields);
    return -1;
}

static void end_of_group(struct http_client_group *group, CURL *curl, CURLcode rc) {
    struct error err = {0};
    char *private = NULL;
    curl_easy_getinfo(curl, CURLINFO_PRIVATE, &private);
    struct http_client *client = (struct http_client *)(void *)private;
    curl_multi_remove_handle(group->multi, curl);
    group->num_running--;
    int status = end(client, rc, &err);
    struct http_answer answer = client->transfer.answer; /* done may start the next */
    client->transfer.done(client->transfer.context, status, &answer, &err);
}

int http_client_group_run(struct http_client_group *group, int wait_ms) {
    int num_active, num_left;
    CURLMsg *message;
    curl_multi_perform(group->multi, &num_active);
    if (num_active > 0) {
        curl_multi_poll(group->multi, NULL, 0, wait_ms, NULL);
        curl_multi_perform(group->multi, &num_active);
    }
    while ((message = curl_multi_info_read(group->multi, &num_left)) != NULL)
        if (message->msg == CURLMSG_DONE)
            end_of_group(group, message->easy_handle, message->data.result);
    return group->num_running;
}

int http_client_key_field(const char *variable, char out[static HTTP_KEY_FIELD_BYTES],
                          struct error *err) {
    const char *key = getenv(variable);
    out[0] = '\0';
    if (key == NULL || key[0] == '\0')
        return 0;
    for (const char *c = key; *c != '\0'; c++)
        if (*c <= ' ' || *c >= 0x7f || c - key >= MAX_KEY_BYTES)
            return error_set(err, ERROR_CONFIG,
                             "%.200s: must be a key of 1 to 255 printable characters", variable);
    snprintf(out, HTTP_KEY_FIELD_BYTES, "Authorization: Bearer %s", key);
    return 0;
}
