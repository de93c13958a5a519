/* Requests over HTTP and HTTPS to other servers, with libcurl, from a thread that may block: for
 * the trace collector, `quire top`, `quire chat` and `quire bench`. Redirects are not followed, and
 * a server's certificate must be valid for its name, by the authorities of CURL_CA_BUNDLE, of
 * SSL_CERT_FILE and SSL_CERT_DIR, or of the system. The proxies of http_proxy, https_proxy and
 * no_proxy are used like in curl(1), but never for this machine. */
#ifndef QUIRE_SERVER_NET_HTTP_CLIENT_H
#define QUIRE_SERVER_NET_HTTP_CLIENT_H

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
    const char *path;        /* complete path, instead of the URL's */
    const char *socket_path; /* UNIX socket through which the URL's host is reached; NULL: none */
    const char
        *fields[HTTP_CLIENT_MAX_FIELDS]; /* further header fields, "Name: value"; NULL: no more */
    const char *body;                    /* NULL: GET, otherwise POST */
    size_t body_bytes;
    int64_t connect_timeout_ms; /* 0: timeout_ms alone */
    int64_t timeout_ms;         /* for all of it; 0: none */
    size_t max_answer_bytes;    /* of the body, if it is kept; more is an error */
    /* Receives the body of an answer with status 2xx as it arrives; it is then not kept. NULL: the
     * body is kept. Returns false to end the transfer. */
    bool (*take)(void *context, const char *data, size_t length);
    /* Returns whether to end the transfer; called at least once a second and after each signal that
     * the thread handles. May be NULL. */
    bool (*is_stopped)(void *context);
    void *context;
};

struct http_answer {
    int status;
    bool is_stopped;       /* by `take` or `is_stopped`; the status is 0 before there was one */
    int64_t retry_after_s; /* from the answer; 0: not given */
    struct byte_buffer body;
};

struct http_client;

/* Keeps at most one connection open, which the next request to the same server reuses. Must be
 * called before the process has other threads, or while no other thread uses libcurl for the first
 * time. Returns NULL when memory is short. */
struct http_client *http_client_create(void);
void http_client_destroy(struct http_client *client); /* accepts NULL */

/* Returns 0 with the answer, whose body the caller finishes, or with a stopped one; -1 (ERROR_IO)
 * when there was no complete answer. */
int http_client_send(struct http_client *client, const struct http_client_request *request,
                     struct http_answer *out, struct error *err);

/* Many concurrent requests on one thread, each with its own client, whose `take` and `is_stopped`
 * are called in http_client_group_run. */
struct http_client_group;

/* NULL: there is no memory. */
struct http_client_group *http_client_group_create(void);
/* Running requests are ended without calling done. The clients outlive the group. Accepts NULL. */
void http_client_group_destroy(struct http_client_group *group);

/* Starts a request. The client must not have another one running; the request and its texts stay
 * valid until done. done: called by http_client_group_run at the end, with status and err like
 * http_client_send; it may start the next request. Returns -1 when memory is short. */
int http_client_group_start(struct http_client_group *group, struct http_client *client,
                            const struct http_client_request *request,
                            void (*done)(void *context, int status, struct http_answer *answer,
                                         const struct error *err),
                            void *context);

/* Processes received data, or waits for some up to wait_ms. Returns the number of running
 * requests. */
int http_client_group_run(struct http_client_group *group, int wait_ms);

/* Restricts a libcurl handle (CURL) to http and https. Returns false if libcurl refuses. */
bool http_client_restrict(void *curl);

/* Writes "Authorization: Bearer KEY" with the key in the environment variable, or "" if that is not
 * set. The key becomes part of a header: fails with ERROR_CONFIG unless it is 1 to 255 printable
 * ASCII characters. */
#define HTTP_KEY_FIELD_BYTES 320
int http_client_key_field(const char *variable, char out[static HTTP_KEY_FIELD_BYTES],
                          struct error *err);

#endif
