#include "server/http/http_checks.h"

#include "config/base/check.h"
#include "config/base/random_id.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* --- Framing, target and id --- */

/* Accepts only digits, by RFC 9110 section 8.6; UINT64_MAX for anything else. */
static uint64_t parse_length(const char *text) {
    uint64_t value = 0;
    if (!*text)
        return UINT64_MAX;
    for (; *text; text++) {
        if (*text < '0' || *text > '9' || __builtin_mul_overflow(value, 10u, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*text - '0'), &value))
            return UINT64_MAX;
    }
    return value;
}

/* uri-host and port of RFC 3986; what they are is for others to say. */
static bool is_host(const char *value) {
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
                                  "-._~%!$&'()*+,;=:[]";
    return value[strspn(value, allowed)] == '\0';
}

void http_framing_add(struct http_framing *framing, const char *name, const char *value) {
    if (!value)
        return;
    if (strcasecmp(name, "Content-Length") == 0) {
        framing->num_lengths++;
        framing->length = parse_length(value);
    } else if (strcasecmp(name, "Transfer-Encoding") == 0) {
        framing->num_codings++;
        framing->is_chunked = strcasecmp(value, "chunked") == 0;
    } else if (strcasecmp(name, "Host") == 0) {
        framing->num_hosts++;
        framing->has_bad_host = framing->has_bad_host || !is_host(value);
    } else if (strcasecmp(name, "Authorization") == 0) {
        framing->num_keys++;
    } else if (strcasecmp(name, "X-Api-Key") == 0) {
        framing->num_x_keys++;
    }
}

static int refuse(struct api_error *err, int status, const char *message) {
    return api_error_set(err, status, "invalid_request_error", "bad_framing", NULL, "%s", message);
}

int http_framing_check(const struct http_framing *framing, struct api_error *err) {
    if (framing->num_hosts > 1)
        return refuse(err, 400, "more than one Host header; allowed is one");
    if (framing->num_hosts == 0 && framing->needs_host)
        return refuse(err, 400, "the Host header is missing, which HTTP/1.1 requires");
    if (framing->has_bad_host)
        return refuse(err, 400, "the Host header is not a host with or without a port");
    if (framing->num_keys > 1)
        return refuse(err, 400, "more than one Authorization header; allowed is one");
    if (framing->num_x_keys > 1)
        return refuse(err, 400, "more than one X-Api-Key header; allowed is one");
    if (framing->num_lengths > 1)
        return refuse(err, 400, "more than one Content-Length header; allowed is one");
    if (framing->num_lengths && framing->num_codings)
        return refuse(err, 400, "Content-Length and Transfer-Encoding together; allowed is one");
    if (framing->num_lengths && framing->length == UINT64_MAX)
        return refuse(err, 400, "Content-Length is not a number of bytes");
    if (framing->num_codings > 1 || (framing->num_codings && !framing->is_chunked))
        return refuse(err, 501, "Transfer-Encoding is not supported; allowed is 'chunked'");
    return 0;
}

const char *http_target_path(const char *target, const char *host, struct api_error *err) {
    static const char *const schemes[] = {"http://", "https://"};
    if (target[0] == '/' || strcmp(target, "*") == 0)
        return target;
    for (size_t i = 0; i < sizeof(schemes) / sizeof(schemes[0]); i++) {
        size_t scheme_length = strlen(schemes[i]);
        if (strncasecmp(target, schemes[i], scheme_length) != 0)
            continue;
        const char *authority = target + scheme_length;
        size_t length = strcspn(authority, "/");
        if (host && strlen(host) == length && strncasecmp(authority, host, length) == 0)
            return authority[length] ? authority + length : "/";
    }
    refuse(err, 400, "the request's target is neither a path nor a URL of the Host it names");
    return NULL;
}

void http_request_id(const char *candidate, char out[REQUEST_ID_BYTES]) {
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
                                  "._:-";
    size_t length = candidate ? strlen(candidate) : 0;
    if (length >= 1 && length < REQUEST_ID_BYTES && strspn(candidate, allowed) == length)
        memcpy(out, candidate, length + 1);
    else
        CHECK(random_id("req-", RANDOM_ID_MAX_DIGITS, out, REQUEST_ID_BYTES) == 0);
}

/* --- The Host field --- */

#define MAX_HOST_BYTES 255
#define DIGITS "0123456789"
#define NAME_BYTES "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ" DIGITS "-_."

/* A host without its port, its brackets and the dot that ends a full name. */
struct host {
    char text[MAX_HOST_BYTES + 1];
    size_t length;
    bool is_address;
};

static bool is_port(const char *text) {
    return text[0] == '\0' || (text[0] == ':' && text[1 + strspn(text + 1, DIGITS)] == '\0');
}

static bool copy(struct host *host, const char *text, size_t length) {
    if (length == 0 || length > MAX_HOST_BYTES)
        return false;
    memcpy(host->text, text, length);
    host->text[length] = '\0';
    host->length = length;
    return true;
}

/* An IPv6 address, maybe with a zone. */
static bool read_ipv6(const char *text, size_t length, struct host *out) {
    struct in6_addr address;
    if (!copy(out, text, length))
        return false;
    out->text[strcspn(out->text, "%")] = '\0';
    out->is_address = inet_pton(AF_INET6, out->text, &address) == 1;
    return out->is_address;
}

static bool read_host(const char *text, struct host *out) {
    struct in_addr address;
    if (text[0] == '[') {
        size_t inside = strcspn(text + 1, "]");
        return text[1 + inside] == ']' && is_port(text + inside + 2) &&
               read_ipv6(text + 1, inside, out);
    }
    size_t length = strspn(text, NAME_BYTES);
    if (!is_port(text + length) || !copy(out, text, length))
        return false;
    if (length > 1 && out->text[length - 1] == '.')
        out->text[--out->length] = '\0';
    out->is_address = inet_pton(AF_INET, out->text, &address) == 1;
    return true;
}

static bool is_equal(const struct host *host, const char *name, size_t length) {
    return host->length == length && strncasecmp(host->text, name, length) == 0;
}

static bool is_below(const struct host *host, const char *name, size_t length) {
    if (host->length <= length + 1)
        return false;
    const char *end = host->text + host->length - length;
    return end[-1] == '.' && strncasecmp(end, name, length) == 0;
}

/* No resolver of the world's gives out names below localhost (RFC 6761 section 6.3). */
static bool is_localhost(const struct host *host) {
    static const char name[] = "localhost";
    size_t length = sizeof(name) - 1;
    return is_equal(host, name, length) || is_below(host, name, length);
}

static bool read_name(const char *text, struct http_host_name *out) {
    struct host host;
    bool is_wildcard = strncmp(text, "*.", 2) == 0, is_domain = text[0] == '.';
    text += is_wildcard ? 2 : is_domain ? 1 : 0;
    /* --host may be an IPv6 address without brackets. */
    if (text[0] == '.' || (!read_host(text, &host) && !read_ipv6(text, strlen(text), &host)))
        return false;
    *out = (struct http_host_name){.text = text,
                                   .length = host.length,
                                   .has_self = !is_wildcard,
                                   .has_subdomains = is_wildcard || is_domain};
    return !host.is_address || !out->has_subdomains;
}

int http_hosts_init(char *const *names, int num_names, struct http_hosts *out, struct error *err) {
    *out = (struct http_hosts){.num_names = num_names};
    for (int i = 0; i < num_names; i++) {
        if (strcmp(names[i], "*") == 0)
            out->allows_any = true;
        else if (!read_name(names[i], &out->names[i]))
            return error_set(err, ERROR_CONFIG,
                             "option allowed-hosts \"%.255s\": must be a host name, .NAME for it "
                             "and its subdomains, *.NAME for these only, or *",
                             names[i]);
    }
    return 0;
}

bool http_hosts_allow(const struct http_hosts *hosts, const char *text) {
    struct host host;
    if (hosts->allows_any || text == NULL || text[0] == '\0')
        return true;
    if (!read_host(text, &host))
        return false;
    if (host.is_address || is_localhost(&host))
        return true;
    for (int i = 0; i < hosts->num_names; i++) {
        const struct http_host_name *name = &hosts->names[i];
        if ((name->has_self && is_equal(&host, name->text, name->length)) ||
            (name->has_subdomains && is_below(&host, name->text, name->length)))
            return true;
    }
    return false;
}

/* --- Pages of other sites --- */

/* The rules are those of the Fetch standard (CORS) and, for what changes something without a
 * preflight, the usual ones against forged requests: Sec-Fetch-Site first, then Origin against
 * Host. A proxy may have changed Host, so that alone refuses only what a page can send without a
 * preflight. */

#define TOKEN_BYTES "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!#$%&'*+-.^_`|~"
#define ALL_METHODS "GET, HEAD, POST, DELETE"
#define PREFLIGHT_SECONDS "600"
#define MAX_ASKED_BYTES 2048

/* --- The options --- */

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

/* The items in sequence, with commas. */
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

/* --- Origins --- */

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

/* --- The judgement --- */

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

/* --- The answer's fields --- */

static const char *allowed_headers(const struct http_origin_rules *rules, const char *asked) {
    if (!rules->allows_any_header)
        return rules->headers;
    /* Names with commas and spaces are safe to be sent back. */
    size_t length = asked != NULL ? strspn(asked, TOKEN_BYTES ", ") : 0;
    return asked != NULL && asked[length] == '\0' && length <= MAX_ASKED_BYTES ? asked : "";
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
