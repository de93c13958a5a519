/* Checks a request's header fields, independently of its connection.
 *
 * libmicrohttpd as built here ensures that lines conform to RFC 9112
 * (subprojects/packagefiles/libmicrohttpd/README.md). But it accepts Transfer-Encoding together
 * with Content-Length, takes the first of two Content-Lengths, waits forever on an unknown transfer
 * coding, and accepts any number of Hosts and keys. Each of these is refused here, before anything
 * else reads the request. */
#ifndef QUIRE_SERVER_HTTP_HTTP_CHECKS_H
#define QUIRE_SERVER_HTTP_HTTP_CHECKS_H

#include "config/base/error.h"
#include "config/json/api_error.h"
#include "config/options.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REQUEST_ID_BYTES 128

/* Initially zeroed except for needs_host. */
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

/* Returns 0, or -1 with *err when the end of the request is ambiguous: the connection must then be
 * closed. */
int http_framing_check(const struct http_framing *framing, struct api_error *err);

/* Returns the path of a request's target, which may be in absolute form (RFC 9112 section 3.2.2) if
 * it names the same server as the Host field; host may be NULL. Returns NULL with *err when it is
 * none of that form, a path and "*". */
const char *http_target_path(const char *target, const char *host, struct api_error *err);

/* Copies the client's X-Request-Id if it is 1..REQUEST_ID_BYTES-1 characters of A-Z a-z 0-9 . _ :
 * -, otherwise generates a random one. candidate may be NULL. */
void http_request_id(const char *candidate, char out[REQUEST_ID_BYTES]);

/* --- The Host field --- */

/* The names this server may be called by (--allowed-hosts).
 *
 * A page of another site cannot read our answers. But the owner of that site's name can point it at
 * us after the page was loaded (DNS rebinding), and the browser then believes that we are that
 * site. Such a request still names the site in Host. IP addresses and localhost are always allowed,
 * because they cannot belong to another site. */

#define HTTP_HOST_MAX_NAMES 64

struct http_host_name {
    const char *text; /* without the sign before it */
    size_t length;
    bool has_self, has_subdomains;
};

struct http_hosts {
    bool allows_any;
    int num_names;
    struct http_host_name names[HTTP_HOST_MAX_NAMES];
};

/* Reads up to HTTP_HOST_MAX_NAMES names, which must outlive *out: a host, ".NAME" for it and its
 * subdomains, "*.NAME" for its subdomains only, "*" for any; a port is ignored. ERROR_CONFIG names
 * an invalid one. */
int http_hosts_init(char *const *names, int num_names, struct http_hosts *out, struct error *err);

/* Returns whether this value of Host is allowed. NULL and "" are: no browser sends them, but
 * HTTP/1.0 probes do. */
bool http_hosts_allow(const struct http_hosts *hosts, const char *host);

/* --- Pages of other sites --- */

/* A browser lets every page send GET, HEAD and POST anywhere, with a body of a few plain types; it
 * sends a preflight first only for other methods, types and fields, and then lets the page see the
 * answer only if the answer allows it (CORS). So without checks any page could use the model on its
 * visitor's machine. A browser marks such requests with Sec-Fetch-Site, which no page can set, or
 * with Origin; a request with neither does not come from a page. */

#define HTTP_ORIGIN_MAX_FIELDS 8

/* A header field of an answer; a list of them ends with a NULL name. */
struct header_field {
    const char *name, *value;
};

struct http_origin_rules {
    struct http_hosts hosts;
    bool has_hosts; /* they were given; otherwise only that of --host, or any */
    const struct option_list *origins;
    bool allows_any_origin, allows_any_header, allows_credentials;
    char methods[OPTIONS_MAX_LIST * 18]; /* the value of Access-Control-Allow-Methods */
    char headers[OPTIONS_MAX_LIST * 66];
};

/* Fields of a request, each NULL if absent; they live as long as the request. */
struct http_origin_request {
    const char *method, *host, *origin, *fetch_site, *content_type;
    const char *preflight_method, *preflight_headers; /* Access-Control-Request-... */
};

/* Reads the options, which must outlive *out. ERROR_CONFIG names the option, the value and what is
 * allowed. */
int http_origin_rules_init(const struct options *options, struct http_origin_rules *out,
                           struct error *err);

/* Sets the rules for a server that only programs on this machine can reach and that needs no key:
 * without --allowed-hosts, the only allowed name is that of --host. */
void http_origin_rules_set_private(struct http_origin_rules *rules);

/* Returns 0, or -1 with *err (421 or 403) for a name that is not ours, or for a page of a site that
 * is not allowed. A navigation to us from another site is allowed. */
int http_origin_check(const struct http_origin_rules *rules,
                      const struct http_origin_request *request, struct api_error *err);

/* Returns whether this is a browser's preflight request of what an allowed page may send. It
 * carries no key, and must be answered with 2xx. */
bool http_origin_is_preflight(const struct http_origin_rules *rules,
                              const struct http_origin_request *request);

/* Writes the fields that every answer to this request must have, errors included. They point into
 * both arguments. */
void http_origin_fields(const struct http_origin_rules *rules,
                        const struct http_origin_request *request,
                        struct header_field out[HTTP_ORIGIN_MAX_FIELDS]);

#endif
