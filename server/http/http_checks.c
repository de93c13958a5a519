#include "server/http/http_checks.h"

#include "config/base/check.h"
#include "config/base/random_id.h"

#include <string.h>
#include <strings.h>

/* Takes digits only, as RFC 9110 section 8.6 has it; UINT64_MAX for anything else. */
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

static bool is_sane_id(const char *id) {
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
                                  "._:-";
    size_t length = strlen(id);
    return length >= 1 && length < REQUEST_ID_BYTES && strspn(id, allowed) == length;
}

void http_request_id(const char *candidate, char out[REQUEST_ID_BYTES]) {
    if (candidate && is_sane_id(candidate)) {
        memcpy(out, candidate, strlen(candidate) + 1);
        return;
    }
    CHECK(random_id("req-", RANDOM_ID_MAX_DIGITS, out, REQUEST_ID_BYTES) == 0);
}
