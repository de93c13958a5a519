#include "server/http_client.h"

#include "config/base/clock.h"

#include <errno.h>
#include <netdb.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

static const char scheme[] = "http://";

static int refuse_url(struct error *err, const char *why) {
    return error_set(err, ERROR_CONFIG, "%s: http://HOST[:PORT][/PATH] is allowed", why);
}

/* Returns where the port begins or the authority ends. */
static const char *take_host(const char *text, size_t length, struct http_url *out) {
    const char *end = text + length;
    bool is_bracketed = length > 0 && text[0] == '[';
    const char *stop = is_bracketed ? memchr(text, ']', length) : memchr(text, ':', length);
    const char *begin = text + is_bracketed;
    stop = stop != NULL || is_bracketed ? stop : end;
    if (stop == NULL || stop == begin || stop - begin >= HTTP_CLIENT_HOST_BYTES)
        return NULL;
    memcpy(out->host, begin, (size_t)(stop - begin));
    return stop + is_bracketed;
}

static bool take_port(const char *text, const char *end, struct http_url *out) {
    size_t length = (size_t)(end - text);
    strcpy(out->port, "80");
    if (length == 0)
        return true;
    if (text[0] != ':' || length < 2 || length > 6 || strspn(text + 1, "0123456789") < length - 1)
        return false;
    memcpy(out->port, text + 1, length - 1);
    out->port[length - 1] = '\0';
    return atoi(out->port) >= 1 && atoi(out->port) <= 65535;
}

int http_url_parse(const char *text, struct http_url *out, struct error *err) {
    *out = (struct http_url){0};
    if (strncasecmp(text, scheme, strlen(scheme)) != 0)
        return refuse_url(err, "no http:// at its beginning");
    const char *authority = text + strlen(scheme);
    size_t length = strcspn(authority, "/?#");
    const char *path = authority + length;
    for (const char *c = text; *c != '\0'; c++)
        if (*c <= ' ' || *c >= 0x7f || *c == '#' || *c == '@')
            return refuse_url(err, "a space, a letter beyond ASCII, a fragment or a user's name");
    const char *port = take_host(authority, length, out);
    if (port == NULL || !take_port(port, path, out))
        return refuse_url(err, "no host, or no port of 1 to 65535");
    if (strlen(path) >= sizeof(out->path) - 1)
        return refuse_url(err, "the path is too long");
    memcpy(out->authority, authority, length);
    snprintf(out->path, sizeof(out->path), "%s%s", *path == '?' ? "/" : "", path);
    return 0;
}

struct exchange {
    int fd;
    int64_t deadline_ms;
};

/* Has the next system call end by the deadline. */
static bool set_timeout(const struct exchange *exchange) {
    int64_t left_ms = exchange->deadline_ms - clock_now_ms();
    struct timeval left = {.tv_sec = (time_t)(left_ms / 1000),
                           .tv_usec = (suseconds_t)(left_ms % 1000 * 1000)};
    if (left_ms <= 0) {
        errno = ETIMEDOUT;
        return false;
    }
    setsockopt(exchange->fd, SOL_SOCKET, SO_RCVTIMEO, &left, sizeof(left));
    setsockopt(exchange->fd, SOL_SOCKET, SO_SNDTIMEO, &left, sizeof(left));
    return true;
}

static int fail(const struct http_client_request *request, const char *what, struct error *err) {
    bool is_late = errno == EAGAIN || errno == EINPROGRESS || errno == ETIMEDOUT;
    return error_set(err, ERROR_IO, "%s: %s: %s", request->url->authority, what,
                     is_late ? "no answer in time" : strerror(errno));
}

static int open_connection(const struct http_client_request *request, struct exchange *exchange,
                           struct error *err) {
    const struct http_url *url = request->url;
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG};
    struct addrinfo *list;
    int rc = getaddrinfo(url->host, url->port, &hints, &list);
    if (rc != 0)
        return error_set(err, ERROR_IO, "%s: %s", url->authority, gai_strerror(rc));
    exchange->fd = -1;
    for (const struct addrinfo *a = list; a != NULL && exchange->fd < 0; a = a->ai_next) {
        exchange->fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (exchange->fd < 0 ||
            (set_timeout(exchange) && connect(exchange->fd, a->ai_addr, a->ai_addrlen) == 0))
            continue;
        int error = errno;
        close(exchange->fd);
        exchange->fd = -1;
        errno = error;
    }
    freeaddrinfo(list);
    return exchange->fd >= 0 ? 0 : fail(request, "cannot connect", err);
}

static bool send_all(const struct exchange *exchange, const char *data, size_t length) {
    while (length > 0) {
        ssize_t count = set_timeout(exchange) ? send(exchange->fd, data, length, MSG_NOSIGNAL) : -1;
        if (count < 0 && errno != EINTR)
            return false;
        data += count > 0 ? count : 0;
        length -= count > 0 ? (size_t)count : 0;
    }
    return true;
}

static bool send_request(const struct http_client_request *request,
                         const struct exchange *exchange) {
    struct byte_buffer head = {0};
    const char *path = request->path[0] != '\0' ? request->path : "/";
    byte_buffer_printf(&head, "%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n%s",
                       request->body != NULL ? "POST" : "GET", path, request->url->authority,
                       request->fields);
    if (request->body != NULL)
        byte_buffer_printf(&head, "Content-Length: %zu\r\n", request->body_bytes);
    byte_buffer_append_text(&head, "\r\n");
    errno = ENOMEM;
    bool is_sent =
        !head.failed && send_all(exchange, head.data, head.length) &&
        (request->body == NULL || send_all(exchange, request->body, request->body_bytes));
    byte_buffer_finish(&head);
    return is_sent;
}

/* Reads to the end of the connection. */
static bool receive(const struct exchange *exchange, struct byte_buffer *out) {
    char data[16384];
    ssize_t count = -1;
    do {
        count = set_timeout(exchange) ? recv(exchange->fd, data, sizeof(data), 0) : -1;
        if (count > 0)
            byte_buffer_append(out, data, (size_t)count);
    } while ((count > 0 && !out->failed) || (count < 0 && errno == EINTR));
    if (out->failed)
        errno = out->is_full ? EMSGSIZE : ENOMEM;
    return count == 0 && !out->failed;
}

static bool has_field(const char *head, const char *field) {
    return strcasestr(head, field) != NULL;
}

/* Puts the chunks of a body one behind the other (RFC 9112, section 7.1). */
static bool join_chunks(char *body, size_t *length) {
    char *to = body, *from = body, *end = body + *length;
    for (;;) {
        char *line = memchr(from, '\n', (size_t)(end - from));
        if (line == NULL || strspn(from, "0123456789abcdefABCDEF") == 0)
            return false;
        unsigned long long size = strtoull(from, NULL, 16);
        from = line + 1;
        if (size == 0)
            break;
        if (size > (size_t)(end - from) || (size_t)(end - from) - size < 2)
            return false;
        memmove(to, from, (size_t)size);
        to += size;
        from += size + 2;
    }
    *length = (size_t)(to - body);
    return true;
}

int http_client_read_answer(struct byte_buffer *answer) {
    int status;
    byte_buffer_append(answer, "", 1);
    if (answer->failed || sscanf(answer->data, "HTTP/1.%*1d %3d", &status) != 1 || status < 100)
        return -1;
    char *body = strstr(answer->data, "\r\n\r\n");
    if (body == NULL)
        return -1;
    *body = '\0';
    size_t skipped = (size_t)(body - answer->data) + 4;
    size_t length = answer->length - 1 - skipped;
    const char *announced = strcasestr(answer->data, "\r\nContent-Length:");
    bool is_chunked = has_field(answer->data, "\r\nTransfer-Encoding: chunked");
    if (is_chunked ? !join_chunks(body + 4, &length)
                   : announced != NULL && strtoull(announced + 17, NULL, 10) > length)
        return -1;
    byte_buffer_consume(answer, skipped);
    answer->length = length;
    return status;
}

int http_client_send(const struct http_client_request *request, struct byte_buffer *out,
                     struct error *err) {
    struct exchange exchange = {.deadline_ms = clock_now_ms() + request->timeout_ms};
    *out = (struct byte_buffer){.max_length = request->max_answer_bytes};
    if (open_connection(request, &exchange, err) != 0)
        return -1;
    int status = -1;
    if (!send_request(request, &exchange) || !receive(&exchange, out))
        fail(request, "no whole answer", err);
    else if ((status = http_client_read_answer(out)) < 0)
        error_set(err, ERROR_IO, "%s: the answer is not HTTP", request->url->authority);
    close(exchange.fd);
    if (status < 0)
        byte_buffer_finish(out);
    return status;
}
