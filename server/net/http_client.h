/* Requests over HTTP and HTTPS to other servers, by libcurl and by a thread that may wait: for the
 * collector of traces, `quire top`, `quire chat` and `quire bench`. No redirect is followed, and
 * the certificate of a server must be valid for its name: by the authorities of CURL_CA_BUNDLE, or
 * of SSL_CERT_FILE and SSL_CERT_DIR, or else the system's. The proxies of http_proxy, https_proxy
 * and no_proxy are used as curl(1) does, but never towards this machine. */
#ifndef QUIRE_SERVER_HTTP_CLIENT_H
#define QUIRE_SERVER_HTTP_CLIENT_H

#include "config/base/byte_buffer.h"
#include "config/base/error.h"

#include <stdbool.h>
#include <stdint.h>

#define HTTP_URL_BYTES 2048
#define HTTP_CLIENT_MAX_FIELDS 8

struct http_url {
    char origin[HTTP_URL_BYTES]; /* scheme://HOST[:PORT] */
    char path[HTTP_URL_BYTES];   /* with its query; "": none, or "/" */
};

/* Reads http[s]://HOST[:PORT][/PATH]. ERROR_CONFIG with what is wrong, without a subject. */
int http_url_parse(const char *text, struct http_url *out, struct error *err);

struct http_client_request {
    const struct http_url *url;
    const char *path;        /* instead of the URL's, whole */
    const char *socket_path; /* of a UNIX socket that the URL's host is reached by; NULL: none */
    const char
        *fields[HTTP_CLIENT_MAX_FIELDS]; /* more of the header, "Name: value"; NULL: no more */
    const char *body;                    /* NULL: GET, otherwise POST */
    size_t body_bytes;
    int64_t connect_timeout_ms; /* 0: timeout_ms alone */
    int64_t timeout_ms;         /* for all of it; 0: none */
    size_t max_answer_bytes;    /* of the body, where it is kept; more is an error */
    /* Takes the body of an answer of status 2xx as it comes, which is not kept then; NULL: it is
     * kept. Returns false to end the transfer. */
    bool (*take)(void *context, const char *data, size_t length);
    /* Asked at least once a second, and after each signal that the thread handles, whether to end
     * the transfer; NULL: it never is. */
    bool (*is_stopped)(void *context);
    void *context;
};

struct http_answer {
    int status;
    bool is_stopped;       /* by `take` or `is_stopped`; the status is 0 before there was one */
    int64_t retry_after_s; /* as the answer says; 0: it does not */
    struct byte_buffer body;
};

struct http_client;

/* Has one connection open at most, which the next request to the same server uses again. To be
 * called before the process has other threads, or while nothing else uses libcurl for the first
 * time. NULL: there is no memory. */
struct http_client *http_client_create(void);
void http_client_destroy(struct http_client *client); /* accepts NULL */

/* Returns 0 with the answer, whose body the caller finishes, or with one that was stopped; -1
 * (ERROR_IO) when there was no whole answer. */
int http_client_send(struct http_client *client, const struct http_client_request *request,
                     struct http_answer *out, struct error *err);

/* Many requests at a time on one thread, each of a client of its own, whose `take` and `is_stopped`
 * are called in http_client_group_run. */
struct http_client_group;

/* NULL: there is no memory. */
struct http_client_group *http_client_group_create(void);
/* What still runs is ended without a word. The clients outlive the group. Accepts NULL. */
void http_client_group_destroy(struct http_client_group *group);

/* Starts a request. The client has no other one under way; the request and its texts stay until
 * done. done: called by http_client_group_run at the end, status and err as http_client_send has
 * them, and may start the next. -1: there is no memory. */
int http_client_group_start(struct http_client_group *group, struct http_client *client,
                            const struct http_client_request *request,
                            void (*done)(void *context, int status, struct http_answer *answer,
                                         const struct error *err),
                            void *context);

/* Takes what has come, or waits for that up to wait_ms. Returns how many requests are under way. */
int http_client_group_run(struct http_client_group *group, int wait_ms);

/* Has a handle of libcurl (CURL) speak http and https alone. Returns false where it refuses
 * that. */
bool http_client_restrict(void *curl);

/* Writes "Authorization: Bearer KEY" of the environment variable, or "" if that is not set. A key
 * becomes part of a header: ERROR_CONFIG for one that is not 1 to 255 printable letters of
 * ASCII. */
#define HTTP_KEY_FIELD_BYTES 320
int http_client_key_field(const char *variable, char out[static HTTP_KEY_FIELD_BYTES],
                          struct error *err);

#endif
