#include "server/http/http_host.h"

#include <arpa/inet.h>
#include <string.h>
#include <strings.h>

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
                             "and its subdomains, *.NAME for these alone, or *",
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
