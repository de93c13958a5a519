/* The paths of the API and what answers them. A new endpoint is a row in http_routes.c. */
#ifndef QUIRE_SERVER_HTTP_HTTP_ROUTES_H
#define QUIRE_SERVER_HTTP_HTTP_ROUTES_H

#include "server/api/call/endpoints.h"
#include "server/http/http_state.h"

/* The format of everything around an endpoint's own answer. */
struct http_dialect {
    void (*format_error)(const struct api_error *err, const char *request_id,
                         struct byte_buffer *out);
    const char *request_id_field; /* a second name of X-Request-Id; NULL: none */
    const char *stream_type;      /* the content type of streams */
    const char *keep_alive;       /* sent on a stream that is silent */
};

struct http_route {
    /* A name in braces stands for one or more characters: any characters at the end of the path,
     * otherwise all except /. */
    const char *path;
    bool is_open;        /* needs no API key */
    bool is_admins;      /* for administrators, and only with --enable-admin */
    const char *methods; /* "GET, HEAD": separated by ", ", as in the field Allow */
    /* Exactly one of the four is set, or transform and parse. */
    int (*answer)(struct connection *connection); /* fills exchange.out, or -1 and exchange.error */
    api_transform *transform;                     /* on a worker, from body to body */
    api_call_parse *parse; /* on a worker; makes engine requests: subject to admission */
    /* Fills exchange.out, or -1 and exchange.error; model: that the body names. */
    int (*manage)(struct connection *connection, struct http_model *model);
    const char *content_type;           /* NULL: in the answer's own fields */
    const struct http_dialect *dialect; /* NULL: OpenAI's */
    const char *model_member;           /* of the body: the name of its model; NULL: "model" */
};

/* Returns the dialect of the answers to a path of this route, NULL if it has none. names_version:
 * the request has Anthropic's header anthropic-version. */
const struct http_dialect *http_routes_dialect(const struct http_route *route, const char *path,
                                               bool names_version);
/* Returns the dialect of an exchange, or OpenAI's if none was found yet. */
const struct http_dialect *http_routes_dialect_of(const struct exchange *exchange);
/* All of them; static. */
const struct http_route *http_routes_list(size_t *out_count);
/* Returns the path after root_path, or the path itself if it does not begin with it: a proxy may or
 * may not remove it. root_path: "/name" or "/several/names"; NULL: none. */
const char *http_routes_strip(const char *path, const char *root_path);
/* Returns NULL when there is none. Paths under /v1 are found without it too. *out_argument: the
 * part of path for the name in braces; empty if there is none. */
const struct http_route *http_routes_find(const char *path, struct text *out_argument);
bool http_routes_has_method(const struct http_route *route, const char *method);

#endif
