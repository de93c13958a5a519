/* One HTTP/1.1 request at a time, over TCP and without TLS, by a thread that may wait: for the
 * collector of traces and for `quire top`. */
#ifndef QUIRE_SERVER_HTTP_CLIENT_H
#define QUIRE_SERVER_HTTP_CLIENT_H

#include "config/base/byte_buffer.h"
#include "config/error.h"

#include <stdint.h>

#define HTTP_CLIENT_HOST_BYTES 256
#define HTTP_CLIENT_PATH_BYTES 1024

struct http_url {
    char host[HTTP_CLIENT_HOST_BYTES]; /* without the brackets of an IPv6 address */
    char port[8];
    char authority[HTTP_CLIENT_HOST_BYTES + 16]; /* as in the URL, for the field Host */
    char path[HTTP_CLIENT_PATH_BYTES];           /* with its query; "": none was given */
};

/* Reads http://HOST[:PORT][/PATH]. ERROR_CONFIG with what is wrong, without a subject. */
int http_url_parse(const char *text, struct http_url *out, struct error *err);

struct http_client_request {
    const struct http_url *url;
    const char *path;   /* instead of the URL's */
    const char *fields; /* more lines of the header, each with its CR LF; "" none */
    const char *body;   /* NULL: GET, otherwise POST */
    size_t body_bytes;
    int64_t timeout_ms;      /* for all of it */
    size_t max_answer_bytes; /* header and body; more is an error */
};

/* Reads an answer that is there as a whole, and leaves its body alone in the buffer. Returns the
 * status; -1: it is none, or not whole. */
int http_client_read_answer(struct byte_buffer *answer);

/* Returns the status, and the body in *out; -1 (ERROR_IO) when there was no whole answer. */
int http_client_send(const struct http_client_request *request, struct byte_buffer *out,
                     struct error *err);

#endif
