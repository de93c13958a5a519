/* The paths of the API and what answers them. A new endpoint is a row in http_routes.c. */
#ifndef QUIRE_SERVER_HTTP_HTTP_ROUTES_H
#define QUIRE_SERVER_HTTP_HTTP_ROUTES_H

#include "server/api/call/endpoints.h"
#include "server/http/http_state.h"

/* How what stands around an endpoint's own answer is written. */
struct http_dialect {
    void (*format_error)(const struct api_error *err, const char *request_id,
                         struct byte_buffer *out);
    const char *request_id_field; /* a second name of X-Request-Id; NULL: it has none */
    const char *keep_alive;       /* sent on a stream that is silent */
};

struct http_route {
    /* A name in braces stands for one or more characters: any where it ends the path, else without
     * /. */
    const char *path;
    bool is_open;        /* needs no API key */
    bool is_admins;      /* for administrators, and with --enable-admin alone */
    const char *methods; /* "GET, HEAD": separated by ", ", as Allow has them */
    /* Exactly one of the three is set. */
    int (*answer)(struct connection *connection); /* fills exchange.out, or -1 and exchange.error */
    api_transform *transform;                     /* on a worker, from body to body */
    api_call_parse *parse;    /* on a worker; makes engine requests: subject to admission */
    const char *content_type; /* NULL: the answer's own fields say it */
    const struct http_dialect *dialect; /* NULL: OpenAI's */
};

/* Returns the dialect of the answers to a path of this route, NULL where it has none.
 * names_version: the request has Anthropic's header anthropic-version. */
const struct http_dialect *http_routes_dialect(const struct http_route *route, const char *path,
                                               bool names_version);
/* Returns that of an exchange, or OpenAI's where none was found yet. */
const struct http_dialect *http_routes_dialect_of(const struct exchange *exchange);
/* All of them; static. */
const struct http_route *http_routes_list(size_t *out_count);
/* Returns the path behind root_path, without which it is found too: a proxy may pass it on or not.
 * root_path: "/name" or "/several/names"; NULL: none. */
const char *http_routes_strip(const char *path, const char *root_path);
/* NULL when there is none. Paths under /v1 are found without it too. *out_argument: what stands for
 * the name in braces, of path; empty where there is none. */
const struct http_route *http_routes_find(const char *path, struct text *out_argument);
bool http_routes_has_method(const struct http_route *route, const char *method);

#endif
