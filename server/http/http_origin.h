/* Judges by a request's header fields what pages of other web sites may do here, apart from any
 * connection.
 *
 * A browser lets every page send GET, HEAD and POST anywhere, with a body of a few plain types; it
 * sends a preflight first only for other methods, types and fields, and then lets the page see the
 * answer only if the answer allows it (CORS). So without care any page could make the model of its
 * visitor's machine work. A browser marks such requests by Sec-Fetch-Site, which no page can set,
 * or else by Origin; a request with neither is no page's. */
#ifndef QUIRE_SERVER_HTTP_HTTP_ORIGIN_H
#define QUIRE_SERVER_HTTP_HTTP_ORIGIN_H

#include "config/options.h"
#include "config/json/api_error.h"
#include "server/http/http_host.h"

#include <stdbool.h>

#define HTTP_ORIGIN_MAX_FIELDS 8

/* A header field of an answer; a list of them ends with a NULL name. */
struct header_field {
    const char *name, *value;
};

struct http_origin_rules {
    struct http_hosts hosts;
    bool has_hosts; /* they were given; else only that of --host, or any */
    const struct option_list *origins;
    bool allows_any_origin, allows_any_header, allows_credentials;
    char methods[OPTIONS_MAX_LIST * 18]; /* as Access-Control-Allow-Methods has them */
    char headers[OPTIONS_MAX_LIST * 66];
};

/* Fields of a request, each NULL where it is absent; they live as long as the request. */
struct http_origin_request {
    const char *method, *host, *origin, *fetch_site, *content_type;
    const char *preflight_method, *preflight_headers; /* Access-Control-Request-... */
};

/* Reads the options, which must outlive *out. ERROR_CONFIG names the option, the value and what is
 * allowed. */
int http_origin_rules_init(const struct options *options, struct http_origin_rules *out,
                           struct error *err);

/* Sets the rules of a server that only this machine's programs reach and that needs no key: where
 * --allowed-hosts says nothing, the only name is that of --host. */
void http_origin_rules_set_private(struct http_origin_rules *rules);

/* Returns 0, or -1 and *err (421 or 403) for a name that is not ours, and for a page of a site that
 * is not allowed. A navigation to us from elsewhere is allowed. */
int http_origin_check(const struct http_origin_rules *rules,
                      const struct http_origin_request *request, struct api_error *err);

/* Returns whether a browser requests what an allowed page may send. It sends no key with that, and
 * wants a 2xx. */
bool http_origin_is_preflight(const struct http_origin_rules *rules,
                              const struct http_origin_request *request);

/* Writes the fields that any answer to this request must have, errors too. They point into both. */
void http_origin_fields(const struct http_origin_rules *rules,
                        const struct http_origin_request *request,
                        struct header_field out[HTTP_ORIGIN_MAX_FIELDS]);

#endif
