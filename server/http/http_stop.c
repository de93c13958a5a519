#include "server/http/http_stop.h"

#include "config/base/clock.h"
#include "config/log.h"
#include "server/http/http_connection.h"
#include "server/service.h"
#include "server/tls/tls_front.h"

#define FIRST_REQUEST_MS 1000 /* from SIGTERM, for requests of those that have just connected */

void http_stop_listening(struct http_server *server) {
    if (server->tls)
        tls_front_quiesce(server->tls);
    else
        MHD_quiesce_daemon(server->daemon);
}

void http_stop_refuse_work(struct http_server *server) {
    server->refuses_work = true;
    engine_stop_accepting(server->engine);
}

void http_stop_begin(struct http_server *server, int64_t grace_ms) {
    server->is_stopping = true;
    server->stop_ms = clock_now_ms();
    server->stop_deadline_ms = server->stop_ms + grace_ms;
    if (server->config.is_socket_passed)
        http_stop_listening(server);
    if (!server->config.is_socket_passed || server->has_failed)
        http_stop_refuse_work(server);
    service_stopping();
    service_extend_timeout((int)((grace_ms + HTTP_STOP_CANCEL_MS + HTTP_STOP_CLOSE_MS) / 1000) + 5);
    log_info("stopping: %lld requests in flight, at most %lld ms for them",
             (long long)server->num_pending, (long long)grace_ms);
}

void http_stop_cancel(struct http_server *server) {
    engine_stop_restarting(server->engine);
    for (struct connection *c = server->connections; c; c = c->next) {
        struct api_call *call = c->exchange.call;
        if (!call || api_call_is_done(call))
            continue;
        for (int i = 0; i < api_call_num_requests(call); i++)
            engine_cancel(server->engine, api_call_request(call, i));
    }
}

void http_stop_close(struct http_server *server) {
    for (struct connection *c = server->connections; c; c = c->next)
        http_connection_give_up(c);
}

bool http_stop_is_request_expected(const struct http_server *server) {
    if (server->refuses_work)
        return false;
    bool are_new_due =
        server->config.is_socket_passed && clock_now_ms() - server->stop_ms < FIRST_REQUEST_MS;
    for (const struct connection *c = server->connections; c; c = c->next) {
        if (c->exchange.state == EXCHANGE_READING || c->exchange.state == EXCHANGE_DRAINING ||
            (c->is_first && are_new_due && !c->is_closed))
            return true;
    }
    return false;
}
