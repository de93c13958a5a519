#include "server/http/http_log.h"

#include "config/base/clock.h"
#include "server/http/http_routes.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

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

void http_log_keep_body(struct connection *connection) {
    struct exchange *exchange = &connection->exchange;
    size_t length = exchange->body.length;
    if (connection->server->config.logs_prompts)
        byte_buffer_append(&exchange->logged_body, exchange->body.data,
                           length < HTTP_LOG_BODY_BYTES ? length : HTTP_LOG_BODY_BYTES);
}

void http_log_exchange(struct connection *connection) {
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

void http_log_refused(struct http_server *server, const struct connection *connection,
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
}
