/* The access handler. libmicrohttpd calls it once with the header, then for each piece of the body,
 * then once more; and again after each resume of a suspended exchange.
 *
 * Everything that can be refused is refused in the first call, in this order: framing, number of
 * connections, name and origin, key, path, method, size, admission. The answer then goes out at
 * once when framing is in doubt or the body is large; a small body is read and dropped first,
 * because closing a socket with unread bytes resets it and the client may lose the answer. */
#include "server/http/http_state.h"

#include <string.h>

struct header_scan {
    struct http_framing framing;
    bool checks_line_ends;
};

/* libmicrohttpd 0.9.x cuts a value at its first NUL and says nothing. It also replaces CR and LF of
 * a line by two NULs in place, so that a value not followed by two NULs went on, or its line ended
 * in a bare LF. The byte after the value's NUL always exists: at least the header's last line
 * follows it in the same buffer. */
static bool line_is_cut(const char *value, size_t length) {
    return value[length + 1] != '\0';
}

static enum MHD_Result scan_header(void *context, enum MHD_ValueKind kind, const char *name,
                                   size_t name_length, const char *value, size_t length) {
    struct header_scan *scan = context;
    http_framing_add(&scan->framing, name, value, length);
    if (value && scan->checks_line_ends && line_is_cut(value, length))
        scan->framing.has_nul = true;
    return MHD_YES;
}

static const char *header(const struct connection *connection, const char *name) {
    return MHD_lookup_connection_value(connection->mhd, MHD_HEADER_KIND, name);
}

/* May the body be held? Reserves its bytes. */
static int reserve_body(struct connection *connection, uint64_t bytes) {
    struct http_server *server = connection->server;
    struct exchange *exchange = &connection->exchange;
    if (bytes > server->config.max_body_bytes - exchange->body_reserved) {
        reply_set_too_large(connection);
        return -1;
    }
    if (bytes > BODY_POOL_BYTES - server->body_bytes && server->body_bytes != 0) {
        server->stats.rejected++;
        return api_error_set(&exchange->error, 503, "server_error", "overloaded", NULL,
                             "the bodies of requests in flight fill their %d MiB; try again",
                             BODY_POOL_BYTES >> 20);
    }
    exchange->body_reserved += bytes;
    server->body_bytes += bytes;
    return 0;
}

static struct http_origin_request read_origin(const struct connection *connection,
                                              const char *method) {
    return (struct http_origin_request){
        .method = method,
        .host = header(connection, "Host"),
        .origin = header(connection, "Origin"),
        .fetch_site = header(connection, "Sec-Fetch-Site"),
        .content_type = header(connection, "Content-Type"),
        .preflight_method = header(connection, "Access-Control-Request-Method"),
        .preflight_headers = header(connection, "Access-Control-Request-Headers"),
    };
}

static int check_key(struct connection *connection) {
    int tenant = auth_tenant(connection->server->auth, header(connection, "Authorization"));
    connection->exchange.tenant = tenant;
    if (tenant >= 0)
        return 0;
    return api_error_set(&connection->exchange.error, 401, "authentication_error",
                         "invalid_api_key", NULL,
                         "this server needs an API key: 'Authorization: Bearer KEY'");
}

static int check_route(struct connection *connection, const char *url, const char *method) {
    struct exchange *exchange = &connection->exchange;
    if (!exchange->route)
        return api_error_set(&exchange->error, 404, "invalid_request_error", "not_found", NULL,
                             "no such path: %.*s", 100, url);
    exchange->allow = exchange->route->methods;
    if (route_has_method(exchange->route, method) || strcmp(method, "OPTIONS") == 0)
        return 0;
    return api_error_set(&exchange->error, 405, "invalid_request_error", "method_not_allowed", NULL,
                         "method %.16s is not allowed here; allowed: %s", method, exchange->allow);
}

static int check_admission(struct connection *connection) {
    struct http_server *server = connection->server;
    struct exchange *exchange = &connection->exchange;
    if (exchange->route->parse == NULL)
        return 0;
    if (server->is_stopping || server->has_failed) {
        server->stats.rejected++;
        return api_error_set(&exchange->error, 503, "server_error", "shutting_down", NULL,
                             "the server is shutting down");
    }
    if (server->num_calls >= server->config.max_calls) {
        server->stats.rejected++;
        return api_error_set(&exchange->error, 429, "rate_limit_error", "queue_full", NULL,
                             "%lld requests are in flight, as many as are allowed; try again",
                             (long long)server->num_calls);
    }
    exchange->is_admitted = true;
    server->num_calls++;
    return 0;
}

static int check_connections(struct connection *connection) {
    struct http_server *server = connection->server;
    if (server->stats.connections <= server->config.max_connections)
        return 0;
    connection->exchange.must_close = true;
    server->stats.rejected++;
    return api_error_set(&connection->exchange.error, 503, "server_error", "too_many_connections",
                         NULL, "%lld connections are open, as many as are allowed; try again",
                         (long long)server->config.max_connections);
}

static int check_framing(struct connection *connection, struct http_framing *out) {
    struct header_scan scan = {.checks_line_ends = connection->server->checks_line_ends};
    MHD_get_connection_values_n(connection->mhd, MHD_HEADER_KIND, scan_header, &scan);
    *out = scan.framing;
    if (http_framing_check(&scan.framing, &connection->exchange.error) == 0)
        return 0;
    connection->exchange.must_close = true;
    return -1;
}

/* All checks of the first call; -1 with exchange.error. */
static int check_request(struct connection *connection, const char *url, const char *method,
                         struct http_framing *framing) {
    struct exchange *exchange = &connection->exchange;
    if (check_framing(connection, framing) != 0 || check_connections(connection) != 0)
        return -1;
    const struct http_origin_rules *origins = connection->server->config.origins;
    if (http_origin_check(origins, &exchange->origin, &exchange->error) != 0)
        return -1;
    bool has_body = framing->num_codings || framing->length > 0;
    if (!has_body && http_origin_is_preflight(origins, &exchange->origin))
        return 0;
    exchange->route = route_find(url, &exchange->argument);
    bool is_open = exchange->route && exchange->route->is_open;
    if (!is_open && check_key(connection) != 0)
        return -1;
    if (check_route(connection, url, method) != 0 || reserve_body(connection, framing->length) != 0)
        return -1;
    return check_admission(connection);
}

static enum MHD_Result begin(struct connection *connection, const char *url, const char *method) {
    struct exchange *exchange = &connection->exchange;
    struct http_framing framing = {0};
    connection->server->num_exchanges++;
    connection->is_first = false;
    exchange->start_ms = http_now_ms();
    exchange->drain_ms = exchange->start_ms;
    exchange->state = EXCHANGE_READING;
    http_request_id(header(connection, "X-Request-Id"), exchange->request_id);
    exchange->origin = read_origin(connection, method);
    if (check_request(connection, url, method, &framing) == 0)
        return MHD_YES;
    exchange->state = EXCHANGE_DRAINING;
    bool is_small = !framing.num_codings && framing.length <= DRAIN_BYTES;
    if (is_small && !exchange->must_close)
        return MHD_YES;
    exchange->must_close = true;
    return reply_error(connection);
}

/* A body without a Content-Length is counted as it comes. */
static enum MHD_Result receive(struct connection *connection, const char *data, size_t length) {
    struct exchange *exchange = &connection->exchange;
    exchange->body_received += length;
    if (exchange->state != EXCHANGE_READING)
        return MHD_YES;
    if (exchange->body_received > exchange->body_reserved &&
        reserve_body(connection, exchange->body_received - exchange->body_reserved) != 0) {
        reply_error_now(connection);
        return MHD_NO;
    }
    byte_buffer_append(&exchange->body, data, length);
    return exchange->body.failed ? MHD_NO : MHD_YES;
}

/* The whole request is here. */
static enum MHD_Result dispatch(struct connection *connection, const char *method) {
    struct exchange *exchange = &connection->exchange;
    if (strcmp(method, "OPTIONS") == 0)
        return reply_options(connection);
    if (!exchange->route->answer) {
        if (connection->is_closed || http_call_start(connection) != 0)
            return MHD_NO;
        connection_suspend(connection);
        return MHD_YES;
    }
    bool is_good = exchange->route->answer(connection) == 0;
    return is_good ? reply_body(connection, exchange->route->content_type)
                   : reply_error(connection);
}

static enum MHD_Result proceed(struct connection *connection, const char *method) {
    switch (connection->exchange.state) {
    case EXCHANGE_READING:
        return dispatch(connection, method);
    case EXCHANGE_DRAINING:
    case EXCHANGE_READY_ERROR:
        return reply_error(connection);
    case EXCHANGE_READY_BODY:
        return reply_body(connection, connection->exchange.route->content_type);
    case EXCHANGE_READY_STREAM:
        return reply_stream(connection);
    case EXCHANGE_WAITING:
        if (connection->is_closed)
            return MHD_NO;
        connection_suspend(connection);
        return MHD_YES;
    default:
        return MHD_NO;
    }
}

static struct connection *find_connection(struct MHD_Connection *mhd) {
    return MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
}

enum MHD_Result handler_handle(void *context, struct MHD_Connection *mhd, const char *url,
                               const char *method, const char *version, const char *upload_data,
                               size_t *upload_size, void **request_context) {
    struct connection *connection = *request_context;
    if (!connection) {
        connection = find_connection(mhd);
        if (!connection)
            return MHD_NO;
        *request_context = connection;
        return begin(connection, url, method);
    }
    if (*upload_size > 0) {
        size_t length = *upload_size;
        *upload_size = 0;
        return receive(connection, upload_data, length);
    }
    return proceed(connection, method);
}
