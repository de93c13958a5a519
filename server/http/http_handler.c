/* libmicrohttpd calls the access handler once with the header, then for each part of the body, then
 * once more; and again after each resume of a suspended exchange. */
#include "server/http/http_handler.h"

#include "config/base/clock.h"
#include "server/http/http_admission.h"
#include "server/http/http_connection.h"
#include "server/http/http_deadlines.h"
#include "server/http/http_dispatch.h"
#include "server/http/http_reply.h"
#include "server/http/http_routes.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define DRAIN_BYTES (64 * 1024) /* bodies of refused requests up to this are read */
#define TURN_BYTES                                                                                 \
    (1 << 20) /* of answers made in one turn of the loop; the rest waits for the next */

static const char *header(const struct connection *connection, const char *name) {
    return MHD_lookup_connection_value(connection->mhd, MHD_HEADER_KIND, name);
}

static int refuse_size(struct connection *connection) {
    return api_error_set(&connection->exchange.error, 413, "invalid_request_error",
                         "body_too_large", NULL, "the body is larger than %zu bytes",
                         connection->server->config.max_body_bytes);
}

/* Finds whose memory the request uses: that of its key or, where none is needed, of its address. */
static int find_owner(struct connection *connection) {
    struct http_server *server = connection->server;
    struct exchange *exchange = &connection->exchange;
    struct http_owner_id id = connection->address->id;
    if (exchange->key != NULL)
        id = http_owner_of_tenant(exchange->key->tenant);
    exchange->owner = http_owner_use(&server->memory, &id);
    if (exchange->owner == NULL)
        return api_error_set_memory(&exchange->error);
    exchange->owner->num_exchanges++;
    return 0;
}

/* Makes room for that many more bytes of the body: doubles the room, as far as the body's length
 * and memory allow. */
static int hold_body(struct connection *connection, size_t bytes) {
    struct exchange *exchange = &connection->exchange;
    size_t most = connection->server->config.max_body_bytes;
    size_t needed = exchange->body.length + bytes;
    if (needed <= exchange->held_bytes)
        return 0;
    size_t wanted = exchange->held_bytes * 2;
    if (exchange->body_length < most)
        most = (size_t)exchange->body_length;
    wanted = wanted > most ? most : wanted;
    wanted = wanted < needed ? needed : wanted;
    if (!http_deadlines_take_memory(connection, wanted - exchange->held_bytes) &&
        !http_deadlines_take_memory(connection, needed - exchange->held_bytes)) {
        connection->server->stats.rejected++;
        return api_error_set(&exchange->error, 503, "server_error", "overloaded", NULL,
                             "the requests in flight leave no memory for this body; try again");
    }
    byte_buffer_reserve(&exchange->body, exchange->held_bytes);
    return exchange->body.failed ? api_error_set_memory(&exchange->error) : 0;
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

static int check_route(struct connection *connection, const char *url, const char *method) {
    struct exchange *exchange = &connection->exchange;
    if (!exchange->route)
        return api_error_set(&exchange->error, 404, "invalid_request_error", "not_found", NULL,
                             "no such path: %.*s", 100, url);
    if (exchange->route->is_admins && !connection->server->config.allows_admin)
        return api_error_set(&exchange->error, 404, "invalid_request_error", "not_found", NULL,
                             "no such path: %.*s; --enable-admin allows it", 100, url);
    exchange->allow = exchange->route->methods;
    if (http_routes_has_method(exchange->route, method) || strcmp(method, "OPTIONS") == 0)
        return 0;
    return api_error_set(&exchange->error, 405, "invalid_request_error", "method_not_allowed", NULL,
                         "method %.16s is not allowed here; allowed: %s", method, exchange->allow);
}

/* What is compressed is not read as JSON. */
static int check_coding(struct connection *connection) {
    const char *coding = header(connection, "Content-Encoding");
    if (coding == NULL || coding[0] == '\0' || strcasecmp(coding, "identity") == 0)
        return 0;
    return api_error_set(
        &connection->exchange.error, 415, "invalid_request_error", "unsupported_encoding", NULL,
        "Content-Encoding %.32s is not supported: send the body uncompressed", coding);
}

static enum MHD_Result add_field(void *context, enum MHD_ValueKind kind, const char *name,
                                 const char *value) {
    http_framing_add(context, name, value);
    return MHD_YES;
}

static int check_framing(struct connection *connection) {
    struct http_framing framing = {.needs_host = !connection->exchange.is_http_1_0};
    MHD_get_connection_values(connection->mhd, MHD_HEADER_KIND, add_field, &framing);
    connection->exchange.body_length = framing.num_codings > 0 ? UINT64_MAX : framing.length;
    if (http_framing_check(&framing, &connection->exchange.error) == 0)
        return 0;
    connection->exchange.must_close = true;
    return -1;
}

/* Makes all checks of the first call; -1 with exchange.error. */
static int check_request(struct connection *connection, const char *url, const char *method) {
    struct exchange *exchange = &connection->exchange;
    const struct http_origin_rules *origins = connection->server->config.origins;
    if (check_framing(connection) != 0)
        return -1;
    const char *path = http_target_path(url, exchange->origin.host, &exchange->error);
    exchange->must_close = exchange->must_close || path == NULL;
    if (path == NULL)
        return -1;
    path = http_routes_strip(path, connection->server->config.root_path);
    exchange->route = http_routes_find(path, &exchange->argument);
    exchange->dialect =
        http_routes_dialect(exchange->route, path, header(connection, "anthropic-version") != NULL);
    if (http_admission_check_connections(connection) != 0 ||
        http_origin_check(origins, &exchange->origin, &exchange->error) != 0)
        return -1;
    if (exchange->body_length == 0 && http_origin_is_preflight(origins, &exchange->origin))
        return 0;
    bool is_open = exchange->route && exchange->route->is_open;
    if (!is_open && http_admission_find_key(connection, header(connection, "Authorization"),
                                            header(connection, "X-Api-Key")) != 0)
        return -1;
    if (check_route(connection, path, method) != 0 ||
        (exchange->route->is_admins && http_admission_check_admin(connection) != 0))
        return -1;
    if (exchange->route->answer == NULL && check_coding(connection) != 0)
        return -1;
    if (exchange->body_length != UINT64_MAX &&
        exchange->body_length > connection->server->config.max_body_bytes)
        return refuse_size(connection);
    if (find_owner(connection) != 0)
        return -1;
    if (exchange->route->parse != NULL &&
        http_admission_read_timeout(header(connection, "X-Request-Timeout"), &exchange->timeout_ms,
                                    &exchange->error) != 0)
        return -1;
    return exchange->route->answer != NULL ? 0 : http_admission_check(connection);
}

static enum MHD_Result begin(struct connection *connection, const char *url, const char *method,
                             const char *version) {
    struct exchange *exchange = &connection->exchange;
    if (connection->is_shut)
        return MHD_NO;
    connection->is_first = false;
    exchange->start_ns = clock_now_ns();
    exchange->received_ms = exchange->start_ns / CLOCK_NS_PER_MS;
    exchange->state = EXCHANGE_READING;
    exchange->is_http_1_0 = strcmp(version, "HTTP/1.0") == 0;
    http_request_id(header(connection, "X-Request-Id"), exchange->request_id);
    snprintf(exchange->method, sizeof(exchange->method), "%s", method);
    trace_context_read(header(connection, "traceparent"), &exchange->trace);
    exchange->origin = read_origin(connection, method);
    if (check_request(connection, url, method) == 0)
        return MHD_YES;
    exchange->state = EXCHANGE_DRAINING;
    if (exchange->body_length <= DRAIN_BYTES && !exchange->must_close)
        return MHD_YES;
    exchange->must_close = true;
    return http_reply_error(connection);
}

static enum MHD_Result receive(struct connection *connection, const char *data, size_t length) {
    struct exchange *exchange = &connection->exchange;
    if (connection->is_shut)
        return MHD_NO;
    exchange->body_received += length;
    exchange->received_ms = clock_now_ms();
    if (exchange->state != EXCHANGE_READING)
        return MHD_YES;
    if (exchange->body_received > connection->server->config.max_body_bytes) {
        refuse_size(connection);
        return http_reply_refuse_body(connection);
    }
    if (exchange->route->answer != NULL) /* it needs no body */
        return MHD_YES;
    if (hold_body(connection, length) != 0)
        return http_reply_refuse_body(connection);
    byte_buffer_append(&exchange->body, data, length);
    return MHD_YES;
}

/* Hands the request to a worker: from here on it counts. */
static enum MHD_Result start(struct connection *connection) {
    if (connection->is_shut)
        return MHD_NO;
    if (http_admission_check(connection) != 0)
        return http_reply_error(connection);
    http_connection_keep_body(connection);
    if (http_dispatch_start(connection) != 0) {
        api_error_set_memory(&connection->exchange.error);
        return http_reply_error(connection);
    }
    http_admission_begin(connection);
    http_connection_suspend(connection);
    return MHD_YES;
}

/* Has the route answer by itself. Beyond a turn's bytes the rest waits for the next turn, so that
 * nobody waits for all of them; routes that say how the server is never wait. */
static enum MHD_Result answer(struct connection *connection) {
    struct http_server *server = connection->server;
    struct exchange *exchange = &connection->exchange;
    const struct http_route *route = exchange->route;
    if (connection->is_shut)
        return MHD_NO;
    if (server->made_bytes > TURN_BYTES && !route->is_open) {
        exchange->is_deferred = true;
        server->num_deferred++;
        http_connection_suspend(connection);
        return MHD_YES;
    }
    exchange->out.max_length = MAX_ANSWER_BYTES;
    bool is_good = route->answer(connection) == 0;
    exchange->out.max_length = 0;
    server->made_bytes += exchange->out.length;
    if (is_good && exchange->awaits_rest) {
        exchange->state = EXCHANGE_WAITING;
        http_connection_suspend(connection);
        return MHD_YES;
    }
    if (is_good && exchange->is_event_stream)
        return http_reply_stream(connection);
    return is_good ? http_reply_body(connection, route->content_type)
                   : http_reply_error(connection);
}

/* Answers or starts a request that is here as a whole. */
static enum MHD_Result dispatch(struct connection *connection, const char *method) {
    struct exchange *exchange = &connection->exchange;
    http_connection_reopen(connection);
    if (strcmp(method, "OPTIONS") == 0)
        return http_reply_options(connection);
    if (!exchange->route->answer)
        return start(connection);
    return answer(connection);
}

static enum MHD_Result proceed(struct connection *connection, const char *method) {
    switch (connection->exchange.state) {
    case EXCHANGE_READING:
        return dispatch(connection, method);
    case EXCHANGE_DRAINING:
    case EXCHANGE_READY_ERROR:
        return http_reply_error(connection);
    case EXCHANGE_READY_BODY:
        return http_reply_body(connection, connection->exchange.route->content_type);
    case EXCHANGE_READY_STREAM:
        return http_reply_stream(connection);
    case EXCHANGE_WAITING:
        if (connection->is_closed)
            return MHD_NO;
        http_connection_suspend(connection);
        return MHD_YES;
    default:
        return MHD_NO;
    }
}

/* Leaves a connection we have no memory for without a context; http_handler_handle then closes
 * it. */
void http_handler_notify(void *context, struct MHD_Connection *mhd, void **socket_context,
                         enum MHD_ConnectionNotificationCode code) {
    struct http_server *server = context;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        struct connection *connection = http_connection_open(server, mhd);
        if (connection && http_has_too_many_connections(server))
            http_deadlines_make_room(server, connection, true);
        else if (connection && http_admission_has_too_many_connections(connection))
            http_deadlines_make_room(server, connection, false);
        if (connection)
            connection->is_surplus = http_has_too_many_connections(server);
        *socket_context = connection;
    } else if (*socket_context) {
        http_connection_close(*socket_context);
        *socket_context = NULL;
    }
}

enum MHD_Result http_handler_handle(void *context, struct MHD_Connection *mhd, const char *url,
                                    const char *method, const char *version,
                                    const char *upload_data, size_t *upload_size,
                                    void **request_context) {
    struct connection *connection = *request_context;
    if (!connection) {
        connection =
            MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
        if (!connection)
            return MHD_NO;
        *request_context = connection;
        return begin(connection, url, method, version);
    }
    if (*upload_size > 0) {
        size_t length = *upload_size;
        *upload_size = 0;
        return receive(connection, upload_data, length);
    }
    return proceed(connection, method);
}
