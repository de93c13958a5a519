/* Judges a request's header fields, apart from any connection.
 *
 * That lines are those of RFC 9112 is seen to by libmicrohttpd as it is built here
 * (subprojects/packagefiles/libmicrohttpd/README.md). It still obeys Transfer-Encoding beside
 * Content-Length, takes the first of two Content-Lengths, waits for ever on an unknown transfer
 * coding, and takes any number of Hosts and keys. Each is refused here, before anything else reads
 * the request. */
#ifndef QUIRE_SERVER_HTTP_HTTP_CHECKS_H
#define QUIRE_SERVER_HTTP_HTTP_CHECKS_H

#include "config/json/api_error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REQUEST_ID_BYTES 128

/* Zeroed but for needs_host. */
struct http_framing {
    bool needs_host; /* HTTP/1.1 */
    int num_hosts;   /* Host fields */
    bool has_bad_host;
    int num_keys;    /* Authorization fields */
    int num_x_keys;  /* X-Api-Key fields */
    int num_lengths; /* Content-Length fields */
    int num_codings; /* Transfer-Encoding fields */
    bool is_chunked; /* the only coding is "chunked" */
    uint64_t length; /* value of Content-Length; UINT64_MAX when it is not a number */
};

/* Adds one header field. value may be NULL. */
void http_framing_add(struct http_framing *framing, const char *name, const char *value);

/* Returns 0, or -1 and *err when the request's extent is in doubt: the connection must then be
 * closed. */
int http_framing_check(const struct http_framing *framing, struct api_error *err);

/* Returns the path of a request's target, which may be in absolute form (RFC 9112 section 3.2.2) if
 * it names the same server as the Host field; host may be NULL. NULL and *err when it is neither
 * that nor a path nor "*". */
const char *http_target_path(const char *target, const char *host, struct api_error *err);

/* Copies the client's X-Request-Id if it is 1..REQUEST_ID_BYTES-1 characters of A-Z a-z 0-9 . _ : -
 * and makes up a random one otherwise. candidate may be NULL. */
void http_request_id(const char *candidate, char out[REQUEST_ID_BYTES]);

#endif
