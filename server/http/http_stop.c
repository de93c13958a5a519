#include "server/http/http_stop.h"

#include "config/base/clock.h"
#include "config/base/log.h"
#include "server/http/http_connection.h"
#include "server/process/service.h"
#include "server/tls/tls_front.h"

#include <sys/socket.h>

#define FIRST_REQUEST_MS 1000 /* from accept or SIGTERM, for a connection's first request */

/* Closing the socket would reset those that have connected and were not accepted yet. */
static void take_waiting(struct http_server *server, int listen_fd) {
    union {
        struct sockaddr any;
        struct sockaddr_storage storage;
    } address;
    socklen_t length = sizeof(address);
    int fd;
    while ((fd = accept4(listen_fd, &address.any, &length, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        MHD_add_connection(server->daemon, fd, &address.any, length);
        length = sizeof(address);
    }
}

void http_stop_listening(struct http_server *server) {
    if (server->tls) {
        tls_front_quiesce(server->tls);
        return;
    }
    int listen_fd = MHD_quiesce_daemon(server->daemon);
    if (server->config.is_socket_passed)
        return;
    take_waiting(server, listen_fd);
    shutdown(listen_fd, SHUT_RDWR);
}

void http_stop_refuse_work(struct http_server *server) {
    server->refuses_work = true;
    engine_stop_accepting(server->engine);
}

static void extend_timeout(int64_t ms) {
    service_extend_timeout((int)((ms + HTTP_STOP_CANCEL_MS + HTTP_STOP_CLOSE_MS) / 1000) + 5);
}

void http_stop_announce(struct http_server *server) {
    const struct http_server_config *config = &server->config;
    server->stop_due_ms = clock_now_ms() + config->drain_delay_ms;
    config->stop_begins(config->stop_context, config->drain_delay_ms + config->shutdown_timeout_ms);
    service_stopping();
    extend_timeout(config->drain_delay_ms + config->shutdown_timeout_ms);
    log_info("draining: requests are taken for %lld ms more", (long long)config->drain_delay_ms);
}

void http_stop_begin(struct http_server *server, int64_t grace_ms) {
    server->is_stopping = true;
    server->stop_ms = clock_now_ms();
    server->stop_deadline_ms = server->stop_ms + grace_ms;
    if (server->config.is_socket_passed)
        http_stop_listening(server);
    if (!server->config.is_socket_passed || server->has_failed)
        http_stop_refuse_work(server);
    server->config.stop_begins(server->config.stop_context, grace_ms);
    service_stopping();
    extend_timeout(grace_ms);
    log_info("stopping: %lld requests in flight, at most %lld ms for them",
             (long long)server->num_pending, (long long)grace_ms);
}

void http_stop_hasten(struct http_server *server) {
    log_info("another signal: cancelling what is in flight");
    server->stop_deadline_ms = clock_now_ms();
    server->config.stop_begins(server->config.stop_context, 0);
}

static void cancel_all(struct http_server *server, struct connection *first) {
    for (struct connection *c = first; c; c = c->next) {
        struct api_call *call = c->exchange.call;
        if (!call || api_call_is_done(call))
            continue;
        for (int i = 0; i < api_call_num_requests(call); i++)
            engine_cancel(server->engine, api_call_request(call, i));
    }
}

void http_stop_cancel_calls(struct http_server *server) {
    cancel_all(server, server->connections);
    cancel_all(server, server->background);
}

void http_stop_cancel(struct http_server *server) {
    engine_stop_restarting(server->engine);
    http_stop_cancel_calls(server);
}

void http_stop_close(struct http_server *server) {
    for (struct connection *c = server->connections; c; c = c->next)
        http_connection_give_up(c);
}

bool http_stop_is_request_expected(const struct http_server *server) {
    int64_t now_ms = clock_now_ms();
    for (const struct connection *c = server->connections; c; c = c->next) {
        int64_t since_ms = c->since_ms > server->stop_ms ? c->since_ms : server->stop_ms;
        if (c->exchange.state == EXCHANGE_READING || c->exchange.state == EXCHANGE_DRAINING ||
            (c->is_first && !c->is_closed && now_ms - since_ms < FIRST_REQUEST_MS))
            return true;
    }
    return false;
}
