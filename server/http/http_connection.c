/* libmicrohttpd 0.9.75 does not notice a hang-up while a connection is suspended, nor one while a
 * stream has nothing to write. So every client socket is also in our own epoll set for EPOLLRDHUP,
 * edge-triggered; a client that closes its writing half counts as gone. Nor has it any deadline for
 * a whole header or body (each byte restarts its timer), so those are ours too. */
#include "server/http/http_state.h"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#define SEND_BUFFER_BYTES (128 * 1024)
/* A silent peer is given up after this. Linux applies it to a closed window as well, also when the
 * peer answers and takes a little now and then, so it leaves slow readers some room. */
#define UNACKED_TIMEOUT_MS 60000

/* Fails harmlessly on UNIX sockets. */
static void set_socket_options(int fd) {
    const int on = 1, send_buffer = SEND_BUFFER_BYTES, unacked_ms = UNACKED_TIMEOUT_MS;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unacked_ms, sizeof(unacked_ms));
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &send_buffer, sizeof(send_buffer));
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
}

static void list_insert(struct http_server *server, struct connection *connection) {
    connection->next = server->connections;
    if (connection->next)
        connection->next->prev = connection;
    server->connections = connection;
    server->stats.connections++;
}

static void list_remove(struct http_server *server, struct connection *connection) {
    if (connection->prev)
        connection->prev->next = connection->next;
    else
        server->connections = connection->next;
    if (connection->next)
        connection->next->prev = connection->prev;
    server->stats.connections--;
}

static struct connection *open_connection(struct http_server *server, struct MHD_Connection *mhd) {
    struct connection *connection = calloc(1, sizeof(*connection));
    if (!connection)
        return NULL;
    connection->server = server;
    connection->mhd = mhd;
    connection->fd = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    connection->since_ms = http_now_ms();
    connection->is_first = true;
    struct epoll_event event = {.events = EPOLLRDHUP | EPOLLHUP | EPOLLERR | EPOLLET,
                                .data.ptr = connection};
    if (epoll_ctl(server->epoll_fd, EPOLL_CTL_ADD, connection->fd, &event) != 0) {
        free(connection);
        return NULL;
    }
    set_socket_options(connection->fd);
    list_insert(server, connection);
    return connection;
}

static void close_connection(struct connection *connection) {
    epoll_ctl(connection->server->epoll_fd, EPOLL_CTL_DEL, connection->fd, NULL);
    list_remove(connection->server, connection);
    free(connection);
}

/* A connection we have no memory for keeps a NULL context; the handler then closes it. */
void connection_notify(void *context, struct MHD_Connection *mhd, void **socket_context,
                       enum MHD_ConnectionNotificationCode code) {
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        *socket_context = open_connection(context, mhd);
    } else if (*socket_context) {
        close_connection(*socket_context);
        *socket_context = NULL;
    }
}

void connection_completed(void *context, struct MHD_Connection *mhd, void **request_context,
                          enum MHD_RequestTerminationCode code) {
    struct connection *connection = *request_context;
    if (!connection)
        return;
    struct http_server *server = connection->server;
    struct exchange *exchange = &connection->exchange;
    http_call_abandon(connection);
    if (exchange->is_admitted)
        server->num_calls--;
    server->body_bytes -= exchange->body_reserved;
    server->num_exchanges--;
    byte_buffer_finish(&exchange->body);
    byte_buffer_finish(&exchange->out);
    byte_buffer_finish(&exchange->ignored);
    memset(exchange, 0, sizeof(*exchange));
    connection->since_ms = http_now_ms();
    *request_context = NULL;
}

void connection_suspend(struct connection *connection) {
    connection->is_suspended = true;
    MHD_suspend_connection(connection->mhd);
}

void connection_wake(struct connection *connection) {
    if (!connection->is_suspended)
        return;
    connection->is_suspended = false;
    MHD_resume_connection(connection->mhd);
}

/* Shutting the socket down makes libmicrohttpd find it closed whatever it was waiting for. */
void connection_hang_up(struct connection *connection) {
    if (connection->is_closed)
        return;
    connection->is_closed = true;
    enum exchange_state state = connection->exchange.state;
    if (state == EXCHANGE_WAITING || connection->exchange.call) {
        http_call_abandon(connection);
        shutdown(connection->fd, SHUT_RDWR);
    }
    connection_wake(connection);
}

static bool is_body_too_slow(const struct exchange *exchange, int64_t now_ms) {
    int64_t late_ms = now_ms - exchange->start_ms - BODY_GRACE_MS;
    return late_ms > 0 && exchange->body_received < (uint64_t)late_ms * BODY_MIN_RATE / 1000;
}

/* The kernel reports a socket writable only when a third of its buffer is free, so a client that
 * takes little at a time lets long go by between two writes of ours. What it has acknowledged in
 * between shows that it is alive. */
static void note_acknowledged(struct connection *connection, int64_t now_ms) {
    struct exchange *exchange = &connection->exchange;
    int unacked_bytes;
    if (exchange_pending(exchange) < OUTPUT_LIMIT_BYTES ||
        ioctl(connection->fd, SIOCOUTQ, &unacked_bytes) != 0)
        return;
    if (unacked_bytes < exchange->unacked_bytes)
        exchange->drain_ms = now_ms;
    exchange->unacked_bytes = unacked_bytes;
}

static bool is_too_slow(const struct connection *connection, int64_t now_ms) {
    const struct exchange *exchange = &connection->exchange;
    switch (exchange->state) {
    case EXCHANGE_NONE:
        return now_ms - connection->since_ms >
               (connection->is_first ? HEADER_TIMEOUT_MS : IDLE_TIMEOUT_MS);
    case EXCHANGE_READING:
    case EXCHANGE_DRAINING:
        return is_body_too_slow(exchange, now_ms);
    case EXCHANGE_ANSWERED:
        return exchange_pending(exchange) >= OUTPUT_LIMIT_BYTES &&
               now_ms - exchange->drain_ms > STREAM_STALL_MS;
    default:
        return false;
    }
}

void connection_check_deadlines(struct connection *connection, int64_t now_ms) {
    if (connection->is_closed)
        return;
    note_acknowledged(connection, now_ms);
    if (!is_too_slow(connection, now_ms))
        return;
    connection_hang_up(connection);
    shutdown(connection->fd, SHUT_RDWR);
}
