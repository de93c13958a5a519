/* The rules are those of the Fetch standard (CORS) and, for what changes something without a
 * preflight, the usual ones against forged requests: Sec-Fetch-Site first, then Origin against
 * Host. A proxy may have changed Host, so that alone refuses only what a page can send without a
 * preflight. */
#include "server/http/http_origin.h"

#include "config/base/check.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define TOKEN_BYTES "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!#$%&'*+-.^_`|~"
#define ALL_METHODS "GET, HEAD, POST, DELETE"
#define PREFLIGHT_SECONDS "600"
#define MAX_ASKED_BYTES 2048

/* ---- The options ---- */

static bool is_any(const struct option_list *list) {
    for (int i = 0; i < list->count; i++)
        if (strcmp(list->items[i], "*") == 0)
            return true;
    return false;
}

/* "scheme://name" or "scheme://name:port", as browsers write it; "null" is that of files and of
 * sandboxed frames. */
static bool is_origin(const char *text) {
    size_t scheme =
        strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-.");
    if (strcmp(text, "null") == 0 || strcmp(text, "*") == 0)
        return true;
    if (scheme == 0 || strncmp(text + scheme, "://", 3) != 0)
        return false;
    const char *host = text + scheme + 3;
    return host[0] != '\0' && host[strcspn(host, "/?#@*\" ")] == '\0';
}

static int check_origins(const struct options *options, struct error *err) {
    const struct option_list *origins = &options->allowed_origins;
    for (int i = 0; i < origins->count; i++)
        if (!is_origin(origins->items[i]))
            return error_set(err, ERROR_CONFIG,
                             "option allowed-origins \"%.255s\": must be scheme://name or "
                             "scheme://name:port without a path, null, or *",
                             origins->items[i]);
    if (options->allow_credentials && is_any(origins))
        return error_set(err, ERROR_CONFIG,
                         "option allow-credentials: needs allowed-origins that name the sites; "
                         "with * any site could use its visitors' logins");
    return 0;
}

/* The items behind each other, with commas. */
static int join_tokens(const char *option, const struct option_list *list, char *out,
                       size_t capacity, struct error *err) {
    size_t length = 0;
    for (int i = 0; i < list->count; i++) {
        const char *item = list->items[i];
        if (item[strspn(item, TOKEN_BYTES)] != '\0')
            return error_set(err, ERROR_CONFIG, "option %s \"%.64s\": must be a plain name or *",
                             option, item);
        length += (size_t)snprintf(out + length, capacity - length, "%s%s", i ? ", " : "", item);
        CHECK(length < capacity); /* the table of options bounds items and their number */
    }
    return 0;
}

static int read_hosts(const struct options *options, struct http_origin_rules *out,
                      struct error *err) {
    const struct option_list *given = &options->allowed_hosts;
    out->has_hosts = given->count > 0;
    if (out->has_hosts)
        return http_hosts_init(given->items, given->count, &out->hosts, err);
    int rc = http_hosts_init(&options->host, 1, &out->hosts, err);
    out->hosts.allows_any = true;
    return rc;
}

int http_origin_rules_init(const struct options *options, struct http_origin_rules *out,
                           struct error *err) {
    *out = (struct http_origin_rules){
        .origins = &options->allowed_origins,
        .allows_any_origin = is_any(&options->allowed_origins),
        .allows_any_header = is_any(&options->allowed_headers),
        .allows_credentials = options->allow_credentials,
    };
    if (read_hosts(options, out, err) != 0 || check_origins(options, err) != 0 ||
        join_tokens("allowed-methods", &options->allowed_methods, out->methods,
                    sizeof(out->methods), err) != 0 ||
        join_tokens("allowed-headers", &options->allowed_headers, out->headers,
                    sizeof(out->headers), err) != 0)
        return -1;
    if (is_any(&options->allowed_methods))
        strcpy(out->methods, ALL_METHODS);
    return 0;
}

void http_origin_rules_set_private(struct http_origin_rules *rules) {
    if (!rules->has_hosts)
        rules->hosts.allows_any = false;
}

/* ---- Origins ---- */

static bool is_given(const char *field) {
    return field != NULL && field[0] != '\0';
}

/* Length of an origin or a host without the port that its scheme has anyway. */
static size_t length_without_port(const char *text, const char *origin) {
    const char *port = strncasecmp(origin, "https://", 8) == 0  ? ":443"
                       : strncasecmp(origin, "http://", 7) == 0 ? ":80"
                                                                : "";
    size_t length = strlen(text), suffix = strlen(port);
    bool has_port = length > suffix && strcmp(text + length - suffix, port) == 0;
    return has_port ? length - suffix : length;
}

static bool is_same(const char *a, const char *b, const char *origin) {
    size_t length = length_without_port(a, origin);
    return length == length_without_port(b, origin) && strncasecmp(a, b, length) == 0;
}

static bool is_allowed_origin(const struct http_origin_rules *rules, const char *origin) {
    if (!is_given(origin))
        return false;
    for (int i = 0; i < rules->origins->count; i++)
        if (is_same(rules->origins->items[i], origin, origin))
            return true;
    return rules->allows_any_origin;
}

static bool is_own_origin(const struct http_origin_request *request) {
    const char *name = strstr(request->origin, "://");
    return name && request->host && is_same(name + 3, request->host, request->origin);
}

/* ---- The judgement ---- */

static bool is_one_of(const char *text, const char *a, const char *b) {
    return strcmp(text, a) == 0 || strcmp(text, b) == 0;
}

/* No page can send this type without a preflight. */
static bool is_json(const char *content_type) {
    static const char json[] = "application/json";
    size_t length = sizeof(json) - 1;
    if (content_type == NULL || strncasecmp(content_type, json, length) != 0)
        return false;
    const char *rest = content_type + length;
    rest += strspn(rest, " \t");
    return *rest == '\0' || *rest == ';';
}

static bool is_forged(const struct http_origin_request *request) {
    bool is_read = is_one_of(request->method, "GET", "HEAD");
    bool has_origin = is_given(request->origin);
    if (is_given(request->fetch_site)) {
        bool is_own = is_one_of(request->fetch_site, "same-origin", "none");
        return !is_own && (has_origin || !is_read);
    }
    return has_origin && !is_read && !is_own_origin(request) && !is_json(request->content_type);
}

int http_origin_check(const struct http_origin_rules *rules,
                      const struct http_origin_request *request, struct api_error *err) {
    if (!http_hosts_allow(&rules->hosts, request->host))
        return api_error_set(err, 421, "invalid_request_error", "host_not_allowed", NULL,
                             "Host '%.100s' is not allowed; --allowed-hosts lists the names that "
                             "this server may be reached by",
                             request->host);
    if (strcmp(request->method, "OPTIONS") == 0 || is_allowed_origin(rules, request->origin) ||
        !is_forged(request))
        return 0;
    return api_error_set(err, 403, "permission_error", "origin_not_allowed", NULL,
                         "requests from pages of %.100s are not allowed; --allowed-origins lists "
                         "the sites whose pages may use this server",
                         is_given(request->origin) ? request->origin : "another site");
}

bool http_origin_is_preflight(const struct http_origin_rules *rules,
                              const struct http_origin_request *request) {
    return strcmp(request->method, "OPTIONS") == 0 && request->preflight_method != NULL &&
           is_allowed_origin(rules, request->origin);
}

/* ---- The answer's fields ---- */

/* Names with commas and spaces: safe to be sent back. */
static bool is_plain_list(const char *text) {
    size_t length = strspn(text, TOKEN_BYTES ", ");
    return text[length] == '\0' && length <= MAX_ASKED_BYTES;
}

static const char *allowed_headers(const struct http_origin_rules *rules, const char *asked) {
    if (!rules->allows_any_header)
        return rules->headers;
    return asked != NULL && is_plain_list(asked) ? asked : "";
}

static void add(struct header_field **at, const char *name, const char *value) {
    if (value[0] != '\0')
        *(*at)++ = (struct header_field){name, value};
}

void http_origin_fields(const struct http_origin_rules *rules,
                        const struct http_origin_request *request,
                        struct header_field out[HTTP_ORIGIN_MAX_FIELDS]) {
    struct header_field *at = out;
    if (rules->origins->count > 0 && !rules->allows_any_origin)
        add(&at, "Vary", "Origin");
    if (is_allowed_origin(rules, request->origin)) {
        add(&at, "Access-Control-Allow-Origin", rules->allows_any_origin ? "*" : request->origin);
        add(&at, "Access-Control-Allow-Credentials", rules->allows_credentials ? "true" : "");
        if (http_origin_is_preflight(rules, request)) {
            add(&at, "Access-Control-Allow-Methods", rules->methods);
            add(&at, "Access-Control-Allow-Headers",
                allowed_headers(rules, request->preflight_headers));
            add(&at, "Access-Control-Max-Age", PREFLIGHT_SECONDS);
        } else {
            add(&at, "Access-Control-Expose-Headers",
                "X-Request-Id, request-id, Retry-After, retry-after-ms, x-should-retry, "
                "X-Ignored-Params");
        }
    }
    *at = (struct header_field){NULL, NULL};
}
