#include "server/http/http_admin.h"

#include "config/base/clock.h"
#include "config/base/log.h"
#include "server/api/admin/admin_endpoint.h"
#include "server/http/http_control.h"
#include "server/http/http_reply.h"

#include <stdlib.h>
#include <string.h>

#define MAX_CONNECTIONS 16
#define MAX_BODY_BYTES 1024
#define HEADER_MEMORY_BYTES (8 * 1024)
#define IDLE_TIMEOUT_S 10

_Static_assert(MAX_CONNECTIONS *(HEADER_MEMORY_BYTES + 4 * MAX_BODY_BYTES) < HTTP_ADMIN_BYTES,
               "connections fit what is counted for them");

struct admin_request {
    bool is_too_large;
    struct byte_buffer body;
};

/* Changes what the server does, and logs it. -1 and *err when the body is wrong. */
typedef int admin_action(struct http_server *server, const struct byte_buffer *body,
                         struct api_error *err);

static int drain(struct http_server *server, const struct byte_buffer *body,
                 struct api_error *err) {
    server->is_draining = true;
    log_info("admin: draining, %lld requests in flight", (long long)server->num_pending);
    return 0;
}

static int resume(struct http_server *server, const struct byte_buffer *body,
                  struct api_error *err) {
    server->is_draining = false;
    log_info("admin: taking requests again");
    return 0;
}

static int flush_cache(struct http_server *server, const struct byte_buffer *body,
                       struct api_error *err) {
    http_control_flush(server);
    return 0;
}

static int set_log_level(struct http_server *server, const struct byte_buffer *body,
                         struct api_error *err) {
    enum log_level level;
    if (admin_endpoint_read_level(body->data, body->length, &level, err) != 0)
        return -1;
    log_info("admin: log level %s", log_level_name(level));
    log_set_level(level);
    return 0;
}

static int do_nothing(struct http_server *server, const struct byte_buffer *body,
                      struct api_error *err) {
    return 0;
}

static const struct admin_route {
    const char *path, *method;
    admin_action *act;
} routes[] = {
    {"/admin/status", "GET", do_nothing},        {"/admin/drain", "POST", drain},
    {"/admin/resume", "POST", resume},           {"/admin/flush-cache", "POST", flush_cache},
    {"/admin/log-level", "POST", set_log_level},
};

static const struct admin_route *find_route(const char *path) {
    for (size_t i = 0; i < sizeof(routes) / sizeof(routes[0]); i++)
        if (strcmp(path, routes[i].path) == 0)
            return &routes[i];
    return NULL;
}

static const char *state_name(const struct http_server *server, const struct engine_stats *stats) {
    if (server->has_failed || engine_has_failed(server->engine))
        return "failed";
    if (server->is_stopping)
        return "stopping";
    if (stats->rest != ENGINE_AWAKE)
        return http_control_rest_name(stats->rest);
    if (stats->is_restarting)
        return "restarting";
    return server->is_draining || server->stop_due_ms != 0 ? "draining" : "serving";
}

static void write_status(const struct http_server *server, struct byte_buffer *out) {
    struct engine_stats stats;
    engine_get_stats(server->engine, &stats);
    const struct admin_status status = {
        .state = state_name(server, &stats),
        .uptime_s = (clock_now_ms() - server->start_ms) / 1000,
        .num_connections = server->stats.connections,
        .num_in_flight = server->num_pending,
        .log_level = log_get_level(),
        .stats = &stats,
    };
    admin_endpoint_write_status(&status, out);
}

static int check(const struct admin_route *route, const char *method,
                 const struct admin_request *request, struct api_error *err) {
    if (!route)
        return api_error_set(err, 404, "invalid_request_error", "not_found", NULL, "no such path");
    if (strcmp(method, route->method) != 0)
        return api_error_set(err, 405, "invalid_request_error", "method_not_allowed", NULL,
                             "method %.16s is not allowed here; allowed: %s", method,
                             route->method);
    if (request->is_too_large)
        return api_error_set(err, 413, "invalid_request_error", "body_too_large", NULL,
                             "the body is larger than %d bytes", MAX_BODY_BYTES);
    return request->body.failed ? api_error_set_memory(err) : 0;
}

/* Every action is answered with the status that it leads to. */
static enum MHD_Result answer(struct http_server *server, struct MHD_Connection *mhd,
                              const char *path, const char *method,
                              const struct admin_request *request) {
    const struct admin_route *route = find_route(path);
    struct byte_buffer out = {0};
    struct api_error error = {.status = 200};
    if (check(route, method, request, &error) == 0 &&
        route->act(server, &request->body, &error) == 0)
        write_status(server, &out);
    else
        api_error_format(&error, &out);
    struct MHD_Response *response =
        out.failed ? NULL
                   : MHD_create_response_from_buffer(out.length, out.data, MHD_RESPMEM_MUST_COPY);
    byte_buffer_finish(&out);
    if (!response)
        return MHD_NO;
    MHD_add_response_header(response, "Content-Type", "application/json");
    MHD_add_response_header(response, "Cache-Control", "no-store");
    if (error.status == 405)
        MHD_add_response_header(response, "Allow", route->method);
    enum MHD_Result result = MHD_queue_response(mhd, (unsigned)error.status, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result handle(void *context, struct MHD_Connection *mhd, const char *url,
                              const char *method, const char *version, const char *upload_data,
                              size_t *upload_size, void **request_context) {
    struct admin_request *request = *request_context;
    if (!request) {
        *request_context = calloc(1, sizeof(*request));
        return *request_context ? MHD_YES : MHD_NO;
    }
    if (*upload_size == 0)
        return answer(context, mhd, url, method, request);
    request->is_too_large =
        request->is_too_large || request->body.length + *upload_size > MAX_BODY_BYTES;
    if (!request->is_too_large)
        byte_buffer_append(&request->body, upload_data, *upload_size);
    *upload_size = 0;
    return MHD_YES;
}

static void complete(void *context, struct MHD_Connection *mhd, void **request_context,
                     enum MHD_RequestTerminationCode code) {
    struct admin_request *request = *request_context;
    if (!request)
        return;
    byte_buffer_finish(&request->body);
    free(request);
    *request_context = NULL;
}

struct MHD_Daemon *http_admin_start(struct http_server *server, int listen_fd) {
    return MHD_start_daemon(
        MHD_USE_EPOLL | MHD_USE_ERROR_LOG, 0, NULL, NULL, handle, server,
        MHD_OPTION_EXTERNAL_LOGGER, http_reply_log, NULL, MHD_OPTION_LISTEN_SOCKET, listen_fd,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)MAX_CONNECTIONS, MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)IDLE_TIMEOUT_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HEADER_MEMORY_BYTES,
        MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_NOTIFY_COMPLETED, complete, NULL,
        MHD_OPTION_REFUSE_CALLBACK, http_reply_refused, server, MHD_OPTION_SIGPIPE_HANDLED_BY_APP,
        1, MHD_OPTION_END);
}
