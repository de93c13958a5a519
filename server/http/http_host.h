/* The Host field of a request, and the names this server may be called by (--allowed-hosts).
 *
 * A page of another site may not read our answers. But the owner of that site's name can point it
 * at us after the page was loaded (DNS rebinding), and the browser then takes us for that site.
 * Such a request still names the site in Host. An IP address and localhost are nobody else's names,
 * so they pass always: whoever uses them means this machine. */
#ifndef QUIRE_SERVER_HTTP_HTTP_HOST_H
#define QUIRE_SERVER_HTTP_HTTP_HOST_H

#include "config/base/error.h"

#include <stdbool.h>
#include <stddef.h>

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
 * subdomains, "*.NAME" for its subdomains alone, "*" for any; a port is ignored. ERROR_CONFIG names
 * the one that is none of these. */
int http_hosts_init(char *const *names, int num_names, struct http_hosts *out, struct error *err);

/* Returns whether this value of Host is one of them. NULL and "" are: no browser sends them, but
 * HTTP/1.0 probes do. */
bool http_hosts_allow(const struct http_hosts *hosts, const char *host);

#endif
