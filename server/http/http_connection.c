/* libmicrohttpd 0.9.75 does not notice a hang-up while a connection is suspended, nor one while a
 * stream has nothing to write. So every client socket is also in our own epoll set for
 * EPOLLRDHUP, edge-triggered.
 *
 * That says the same of a client that is gone and of one that has closed its sending half and
 * reads on (nc -N); TCP tells them apart by what the other side's kernel says to bytes that it
 * gets. A stream sends some with the next token; if that takes longer, a comment. Before an answer
 * has begun bytes are made up: RFC 9110 section 15.2 has clients read over interim responses, of
 * which all of them know 100. */
#include "server/http/http_connection.h"

#include "config/base/clock.h"
#include "config/base/log.h"
#include "server/http/http_admission.h"
#include "server/http/http_routes.h"
#include "server/net/listen_socket.h"

#include <arpa/inet.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#define FIRST_PROBE_MS 200 /* from the half close: many answers are there before */
#define NEXT_PROBE_MS 15000

/* --- Access log and traces --- */

static int64_t time_of_day_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * CLOCK_NS_PER_S + now.tv_nsec;
}

/* Returns the trace of the exchange: the client's or, for an API call that is to be traced, a new
 * one. NULL: none. */
static const struct trace_context *find_trace(struct connection *connection) {
    struct exchange *exchange = &connection->exchange;
    bool is_traced = connection->server->config.traces != NULL && exchange->route != NULL &&
                     exchange->route->parse != NULL;
    if (exchange->trace.trace_id[0] == '\0' &&
        (!is_traced || trace_context_begin(&exchange->trace) != 0))
        return NULL;
    return &exchange->trace;
}

static const char *describe_client(const struct connection *connection,
                                   char out[INET6_ADDRSTRLEN]) {
    if (connection->mhd == NULL)
        return "background";
    const struct sockaddr *address =
        MHD_get_connection_info(connection->mhd, MHD_CONNECTION_INFO_CLIENT_ADDRESS)->client_addr;
    if (address != NULL && address->sa_family == AF_INET)
        return inet_ntop(AF_INET, &((const struct sockaddr_in *)address)->sin_addr, out,
                         INET6_ADDRSTRLEN);
    if (address != NULL && address->sa_family == AF_INET6)
        return inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)address)->sin6_addr, out,
                         INET6_ADDRSTRLEN);
    return "unix";
}

static uint64_t sent_bytes(const struct exchange *exchange) {
    return strcmp(exchange->method, "HEAD") == 0 ? 0
                                                 : exchange->whole_bytes + exchange->taken_bytes;
}

void http_connection_keep_body(struct connection *connection) {
    struct exchange *exchange = &connection->exchange;
    size_t length = exchange->body.length;
    if (connection->server->config.logs_prompts)
        byte_buffer_append(&exchange->logged_body, exchange->body.data,
                           length < HTTP_LOG_BODY_BYTES ? length : HTTP_LOG_BODY_BYTES);
}

void http_connection_log(struct connection *connection) {
    struct exchange *exchange = &connection->exchange;
    struct http_server *server = connection->server;
    struct api_call_summary call;
    char client[INET6_ADDRSTRLEN];
    bool is_wanted = server->config.access_log != NULL || server->config.traces != NULL;
    if (!is_wanted || exchange->state == EXCHANGE_NONE || exchange->is_logged)
        return;
    exchange->is_logged = true;
    if (exchange->call != NULL)
        call = api_call_summary_of(exchange->call);
    struct access_record record = {
        .start_ns = exchange->start_ns,
        .end_ns = clock_now_ns(),
        .time_ns = time_of_day_ns(),
        .trace = find_trace(connection),
        .request_id = exchange->request_id,
        .key = exchange->key != NULL ? exchange->key->entry.name : NULL,
        .client = describe_client(connection, client),
        .method = exchange->method,
        .route = exchange->route != NULL ? exchange->route->path : NULL,
        .status = exchange->answered_status ? exchange->answered_status : ACCESS_CLIENT_GONE,
        .error_code = exchange->error.code,
        .received_bytes = exchange->body_received,
        .sent_bytes = sent_bytes(exchange),
        .call = exchange->call != NULL ? &call : NULL,
        .body = exchange->logged_body.data,
        .body_bytes = exchange->logged_body.length,
    };
    if (record.call != NULL && call.error_code != NULL)
        record.error_code = call.error_code;
    access_log_write(server->config.access_log, &record);
    if (exchange->route != NULL && exchange->route->parse != NULL)
        trace_exporter_put(server->config.traces, &record);
}

static void log_error_of(struct http_server *server, const struct access_record *record,
                         const struct api_error *error) {
    char line[TRAFFIC_LOG_LINE_BYTES];
    if (traffic_log_refused(&server->refusals, record, error, clock_now_ms(), line))
        log_info("%s", line);
}

void http_connection_log_error(struct connection *connection) {
    const struct exchange *exchange = &connection->exchange;
    char client[INET6_ADDRSTRLEN];
    const struct access_record record = {
        .request_id = exchange->request_id,
        .key = exchange->key != NULL ? exchange->key->entry.name : NULL,
        .client = describe_client(connection, client),
        .method = exchange->method,
        .route = exchange->route != NULL ? exchange->route->path : NULL,
    };
    log_error_of(connection->server, &record, &exchange->error);
}

void http_connection_log_refused(struct http_server *server, const struct connection *connection,
                                 const char *request_id, const struct api_error *error) {
    char client[INET6_ADDRSTRLEN];
    const struct access_record record = {
        .time_ns = time_of_day_ns(),
        .request_id = request_id,
        .client = connection != NULL ? describe_client(connection, client) : NULL,
        .status = error->status,
        .error_code = error->code,
    };
    access_log_write(server->config.access_log, &record);
    log_error_of(server, &record, error);
}

/* --- Connections and exchanges --- */

struct connection *http_connection_open(struct http_server *server, struct MHD_Connection *mhd) {
    const struct sockaddr *address =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CLIENT_ADDRESS)->client_addr;
    struct http_owner_id id = http_owner_of_address(address);
    struct connection *connection = calloc(1, sizeof(*connection));
    struct http_owner *owner = connection != NULL ? http_owner_use(&server->memory, &id) : NULL;
    if (owner == NULL) {
        free(connection);
        return NULL;
    }
    connection->server = server;
    connection->mhd = mhd;
    connection->address = owner;
    connection->fd = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    connection->since_ms = clock_now_ms();
    connection->is_first = true;
    struct epoll_event hang_up = {.events = EPOLLRDHUP | EPOLLHUP | EPOLLERR | EPOLLET,
                                  .data.ptr = connection};
    if (epoll_ctl(server->epoll_fd, EPOLL_CTL_ADD, connection->fd, &hang_up) != 0) {
        http_owner_leave(&server->memory, owner);
        free(connection);
        return NULL;
    }
    listen_socket_set_options(connection->fd);
    connection->next = server->connections;
    if (connection->next)
        connection->next->prev = connection;
    server->connections = connection;
    server->stats.connections++;
    owner->num_connections++;
    return connection;
}

void http_connection_close(struct connection *connection) {
    struct http_server *server = connection->server;
    epoll_ctl(server->epoll_fd, EPOLL_CTL_DEL, connection->fd, NULL);
    if (connection->prev)
        connection->prev->next = connection->next;
    else
        server->connections = connection->next;
    if (connection->next)
        connection->next->prev = connection->prev;
    server->stats.connections--;
    if (connection->is_closed)
        server->num_closed--;
    else
        connection->address->num_connections--;
    http_owner_leave(&server->memory, connection->address);
    free(connection);
}

/* A request that has finished must not be cancelled. A call of several that is done may still have
 * some that run: it is over when one of them fails. */
void http_connection_cancel(struct connection *connection) {
    struct api_call *call = connection->exchange.call;
    int num_requests = api_call_num_requests(call);
    bool has_finished = api_call_is_done(call) && num_requests == 1;
    for (int i = 0; i < num_requests; i++) {
        struct request *request = api_call_request(call, i);
        request->user = NULL;
        if (!has_finished)
            engine_cancel(connection->exchange.model->parts.engine, request);
    }
}

static void cancel_calls(struct connection *first) {
    for (struct connection *c = first; c; c = c->next) {
        struct api_call *call = c->exchange.call;
        if (!call || api_call_is_done(call))
            continue;
        for (int i = 0; i < api_call_num_requests(call); i++)
            engine_cancel(c->exchange.model->parts.engine, api_call_request(call, i));
    }
}

void http_connection_cancel_all(struct http_server *server) {
    cancel_calls(server->connections);
    cancel_calls(server->background);
}

void http_connection_free_background(struct connection *background) {
    struct exchange *exchange = &background->exchange;
    struct http_memory *memory = &background->server->memory;
    if (background->num_followers > 0)
        return;
    byte_buffer_finish(&exchange->out);
    byte_buffer_finish(&exchange->body);
    http_memory_give(memory, exchange->owner, exchange->held_bytes);
    http_owner_leave(memory, exchange->owner);
    api_key_leave(exchange->key);
    http_owner_leave(memory, background->address);
    free(background);
}

/* Leaves the call in the background that it follows, if any. */
static void stop_following(struct connection *connection) {
    struct exchange *exchange = &connection->exchange;
    struct connection *background = exchange->followed;
    if (background == NULL)
        return;
    exchange->followed = NULL;
    background->num_followers--;
    connection->server->num_pending--;
    if (background->is_ended)
        http_connection_free_background(background);
}

/* Cancels what is unfinished and forgets the call. */
static void abandon(struct connection *connection) {
    struct exchange *exchange = &connection->exchange;
    stop_following(connection);
    response_reader_close(&exchange->kept);
    if (exchange->task) {
        exchange->task->connection = NULL;
        atomic_store(&exchange->task->is_abandoned, true);
        exchange->task = NULL;
    }
    if (exchange->call) {
        http_connection_cancel(connection);
        api_call_destroy(exchange->call);
        exchange->call = NULL;
    }
}

/* Takes it off the allowed connections, although libmicrohttpd still has it. */
static void mark_closed(struct connection *connection) {
    if (connection->is_closed)
        return;
    connection->server->num_closed++;
    connection->address->num_connections--;
    connection->is_closed = true;
}

void http_connection_completed(void *context, struct MHD_Connection *mhd, void **request_context,
                               enum MHD_RequestTerminationCode code) {
    struct connection *connection = *request_context;
    if (!connection)
        return;
    struct http_server *server = connection->server;
    struct exchange *exchange = &connection->exchange;
    http_connection_log(connection);
    abandon(connection);
    if (exchange->is_pending)
        http_admission_end(connection);
    if (exchange->is_let_in)
        http_models_leave(server, exchange->model);
    server->num_awaiting -= exchange->awaits_rest;
    server->num_deferred -= exchange->is_deferred;
    http_connection_release_memory(connection);
    if (exchange->owner != NULL)
        exchange->owner->num_exchanges--;
    http_owner_leave(&server->memory, exchange->owner);
    api_key_leave(exchange->key);
    byte_buffer_finish(&exchange->ignored);
    byte_buffer_finish(&exchange->logged_body);
    memset(exchange, 0, sizeof(*exchange));
    connection->since_ms = clock_now_ms();
    if (connection->is_half_closed)
        mark_closed(connection);
    *request_context = NULL;
}

void http_connection_suspend(struct connection *connection) {
    connection->is_suspended = true;
    MHD_suspend_connection(connection->mhd);
}

void http_connection_wake(struct connection *connection) {
    if (!connection->is_suspended)
        return;
    connection->is_suspended = false;
    MHD_resume_connection(connection->mhd);
}

void http_connection_resume_deferred(struct http_server *server) {
    server->made_bytes = 0;
    if (server->num_deferred == 0)
        return;
    for (struct connection *c = server->connections; c != NULL; c = c->next) {
        if (!c->exchange.is_deferred)
            continue;
        c->exchange.is_deferred = false;
        c->exchange.received_ms = clock_now_ms();
        http_connection_wake(c);
    }
    server->num_deferred = 0;
}

void http_connection_release_memory(struct connection *connection) {
    struct exchange *exchange = &connection->exchange;
    byte_buffer_finish(&exchange->body);
    byte_buffer_finish(&exchange->out);
    exchange->out_taken = 0;
    if (exchange->owner != NULL)
        http_memory_give(&connection->server->memory, exchange->owner, exchange->held_bytes);
    exchange->held_bytes = 0;
}

void http_connection_give_up(struct connection *connection) {
    if (connection->is_shut)
        return;
    mark_closed(connection);
    connection->is_shut = true;
    http_connection_log(connection);
    abandon(connection);
    shutdown(connection->fd, SHUT_RDWR);
    http_connection_wake(connection);
}

void http_connection_reopen(struct connection *connection) {
    if (!connection->is_closed || connection->is_shut)
        return;
    connection->server->num_closed--;
    connection->address->num_connections++;
    connection->is_closed = false;
}

bool http_connection_has_unread(const struct connection *connection) {
    int unread_bytes = 0;
    return ioctl(connection->fd, SIOCINQ, &unread_bytes) == 0 && unread_bytes > 0;
}

void http_connection_hang_up(struct connection *connection, bool is_gone) {
    if (connection->is_shut)
        return;
    if (!connection->is_half_closed) {
        connection->is_half_closed = true;
        connection->closed_ms = clock_now_ms();
        connection->probe_ms = connection->closed_ms + FIRST_PROBE_MS;
    }
    const struct exchange *exchange = &connection->exchange;
    bool is_cut = (exchange->state == EXCHANGE_READING || exchange->state == EXCHANGE_DRAINING) &&
                  !exchange->is_deferred;
    /* An answer may still be read where the request came as a whole, or the rest of it is here. */
    if (exchange->state == EXCHANGE_NONE)
        mark_closed(connection);
    else if (is_gone || (is_cut && !http_connection_has_unread(connection)))
        http_connection_give_up(connection);
}

/* Only where the kernel has nothing to send, so that it takes all of it. HTTP/1.0 has no interim
 * responses. */
static void send_interim(struct connection *connection) {
    static const char interim[] = "HTTP/1.1 100 Continue\r\n\r\n";
    int unsent_bytes = 0;
    if (connection->exchange.is_http_1_0)
        http_connection_give_up(connection);
    else if (ioctl(connection->fd, SIOCOUTQ, &unsent_bytes) == 0 && unsent_bytes == 0)
        send(connection->fd, interim, sizeof(interim) - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* A UNIX socket says by itself when its other end is closed. */
bool http_connection_probe(struct connection *connection, int64_t now_ms) {
    enum exchange_state state = connection->exchange.state;
    if (!connection->is_half_closed || connection->is_shut || now_ms < connection->probe_ms ||
        connection->address->id.family == AF_UNIX ||
        (state != EXCHANGE_WAITING && state != EXCHANGE_ANSWERED))
        return false;
    connection->probe_ms = now_ms + NEXT_PROBE_MS;
    if (state == EXCHANGE_WAITING)
        send_interim(connection);
    return state == EXCHANGE_ANSWERED;
}
