#include "server/http/http_control.h"

#include "config/base/clock.h"
#include "config/base/log.h"
#include "config/json/json_write.h"
#include "server/api/admin/admin_endpoint.h"
#include "server/http/http_connection.h"
#include "server/http/http_model_routes.h"
#include "server/http/http_server.h"

#include <stdlib.h>
#include <string.h>

struct argument {
    const char *name;
    const char *const *allowed; /* values, ending with NULL */
    const char *what;           /* they are, for people */
    unsigned given;             /* bit i: allowed[i] */
};

/* --- Arguments --- */

struct query {
    struct argument *arguments;
    size_t count;
    struct api_error *err;
};

static int refuse_value(const struct query *query, const char *name, const char *value,
                        const char *what) {
    return bad_request(query->err, "unsupported_value", name, "%.40s is \"%.40s\", must be %s",
                       name, value != NULL ? value : "", what);
}

static int take_value(const struct query *query, struct argument *argument, const char *value) {
    for (int i = 0; argument->allowed[i] != NULL; i++) {
        if (value == NULL || strcmp(value, argument->allowed[i]) != 0)
            continue;
        argument->given |= 1U << i;
        return 0;
    }
    return refuse_value(query, argument->name, value, argument->what);
}

static enum MHD_Result take_argument(void *context, enum MHD_ValueKind kind, const char *name,
                                     const char *value) {
    const struct query *query = context;
    if (strcmp(name, "model") == 0) /* http_model_routes_find_loaded */
        return MHD_YES;
    for (size_t i = 0; i < query->count; i++)
        if (strcmp(name, query->arguments[i].name) == 0)
            return take_value(query, &query->arguments[i], value) == 0 ? MHD_YES : MHD_NO;
    refuse_value(query, name, value, "absent: it is not an argument of this path");
    return MHD_NO;
}

static int read_query(struct connection *connection, struct argument *arguments, size_t count) {
    struct api_error *err = &connection->exchange.error;
    struct query query = {arguments, count, err};
    err->status = 0;
    MHD_get_connection_values(connection->mhd, MHD_GET_ARGUMENT_KIND, take_argument, &query);
    return err->status == 0 ? 0 : -1;
}

/* --- Answers --- */

static void write_flag(const char *name, bool value, struct byte_buffer *out) {
    json_write_begin_object(out);
    json_write_key(out, name);
    json_write_bool(out, value);
    json_write_end_object(out);
}

static int refuse_state(struct connection *connection, const char *message) {
    return api_error_set(&connection->exchange.error, 409, "invalid_request_error",
                         "conflicting_state", NULL, "%s", message);
}

/* Until http_control_update. */
static int await(struct connection *connection, enum engine_rest awaited,
                 const struct engine_rest_view *before) {
    connection->exchange.awaits_rest = true;
    connection->exchange.awaited_rest = awaited;
    connection->exchange.rest_before = *before;
    connection->server->num_awaiting++;
    return 0;
}

/* Each returns 1 while it is not decided, 0, or -1 with the error. */
static int judge_sleep(struct connection *connection, const struct engine_rest_view *now) {
    if (now->num_slept > connection->exchange.rest_before.num_slept)
        return 0;
    if (now->rest == ENGINE_FALLING_ASLEEP)
        return 1;
    return refuse_state(connection, "the server was woken before it slept");
}

static int judge_waking(struct connection *connection, const struct engine_rest_view *now) {
    const struct engine_rest_view *before = &connection->exchange.rest_before;
    if (now->num_wake_failures > before->num_wake_failures)
        return api_error_set(&connection->exchange.error, 503, "server_error", "cannot_wake", NULL,
                             "the server stays asleep because it cannot wake up; its log says why");
    return now->num_woken > before->num_woken ? 0 : 1;
}

static void settle(struct connection *connection, const struct engine_rest_view *now) {
    struct exchange *exchange = &connection->exchange;
    bool is_falling = exchange->awaited_rest == ENGINE_ASLEEP;
    int status = is_falling ? judge_sleep(connection, now) : judge_waking(connection, now);
    if (status > 0 && (connection->server->is_stopping || connection->server->has_failed))
        status = api_error_set(&exchange->error, 503, "server_error", "shutting_down", NULL,
                               "the server is shutting down");
    if (status > 0)
        return;
    if (status == 0)
        write_flag("is_sleeping", is_falling, &exchange->out);
    exchange->state = status == 0 ? EXCHANGE_READY_BODY : EXCHANGE_READY_ERROR;
    http_connection_wake(connection);
}

void http_control_update(struct http_server *server) {
    if (server->num_awaiting == 0)
        return;
    const struct engine_rest_view now = engine_get_rest(server->models.items[0]->parts.engine);
    for (struct connection *c = server->connections; c != NULL; c = c->next)
        if (c->exchange.awaits_rest && c->exchange.state == EXCHANGE_WAITING)
            settle(c, &now);
}

/* --- Routes --- */

static void flush_all(struct http_server *server, bool with_store) {
    for (int i = 0; i < server->models.count; i++)
        if (http_model_is_loaded(server->models.items[i]))
            engine_flush_cache(server->models.items[i]->parts.engine, with_store);
    log_info("admin: prefix cache flushed%s", with_store ? ", and its store" : "");
}

/* Several models sleep and wake as memory and requests have it. */
static int check_alone(struct connection *connection) {
    if (!http_models_are_managed(&connection->server->models))
        return 0;
    return bad_request(&connection->exchange.error, "unsupported_value", NULL,
                       "this server has several models: POST /models/unload and /models/load");
}

static const char *const off[] = {"false", "False", "0", NULL};

int http_control_reset_cache(struct connection *connection) {
    static const char *const switches[] = {"true", "True", "1", "false", "False", "0", NULL};
    struct argument arguments[] = {
        {"reset_running_requests", off, "false: running requests keep their blocks", 0},
        {"reset_external", switches, "true or false", 0},
    };
    if (read_query(connection, arguments, 2) != 0)
        return -1;
    flush_all(connection->server, (arguments[1].given & 7U) != 0);
    write_flag("success", true, &connection->exchange.out);
    return 0;
}

int http_control_sleep(struct connection *connection) {
    static const char *const levels[] = {"1", "2", NULL}, *const modes[] = {"wait", "abort", NULL};
    struct argument arguments[] = {
        {"level", levels, "1 or 2", 0},
        {"mode", modes, "wait or abort", 0},
    };
    struct http_server *server = connection->server;
    struct engine *engine = server->models.items[0]->parts.engine;
    if (read_query(connection, arguments, 2) != 0 || check_alone(connection) != 0)
        return -1;
    bool discards_weights = (arguments[0].given & 2) != 0;
    if (!engine_can_sleep(engine))
        return bad_request(&connection->exchange.error, "unsupported_value", NULL,
                           "ranks that mpirun has started cannot sleep");
    struct engine_rest_view now;
    if (!engine_sleep(engine, discards_weights, &now))
        return refuse_state(connection, now.rest == ENGINE_WAKING
                                            ? "the server is waking up"
                                            : "the server sleeps at level 2; wake it up first");
    if (now.rest == ENGINE_ASLEEP) {
        write_flag("is_sleeping", true, &connection->exchange.out);
        return 0;
    }
    log_info("sleep at level %d requested, %lld requests in flight", discards_weights ? 2 : 1,
             (long long)server->num_api_calls);
    server->woken_tags = 0;
    if ((arguments[1].given & 2) != 0)
        http_connection_cancel_all(server);
    return await(connection, ENGINE_ASLEEP, &now);
}

int http_control_wake(struct connection *connection) {
    static const char *const tags[] = {"weights", "kv_cache", NULL};
    struct argument arguments[] = {{"tags", tags, "weights or kv_cache", 0}};
    struct http_server *server = connection->server;
    struct engine *engine = server->models.items[0]->parts.engine;
    const unsigned all = 3;
    if (read_query(connection, arguments, 1) != 0 || check_alone(connection) != 0)
        return -1;
    struct engine_rest_view now = engine_get_rest(engine);
    server->woken_tags |= arguments[0].given != 0 ? arguments[0].given : all;
    bool is_part = server->woken_tags != all && now.rest != ENGINE_AWAKE;
    if (is_part) {
        write_flag("is_sleeping", true, &connection->exchange.out);
        return 0;
    }
    server->woken_tags = 0;
    engine_wake(engine, &now);
    if (now.rest == ENGINE_AWAKE) {
        write_flag("is_sleeping", false, &connection->exchange.out);
        return 0;
    }
    log_info("waking up");
    return await(connection, ENGINE_AWAKE, &now);
}

int http_control_is_sleeping(struct connection *connection) {
    const struct http_model *model;
    if (read_query(connection, NULL, 0) != 0 ||
        (model = http_model_routes_find_loaded(connection)) == NULL)
        return -1;
    enum engine_rest rest = engine_get_rest(model->parts.engine).rest;
    write_flag("is_sleeping", rest == ENGINE_ASLEEP || rest == ENGINE_WAKING,
               &connection->exchange.out);
    return 0;
}

int http_control_server_info(struct connection *connection) {
    static const char *const formats[] = {"json", NULL};
    struct argument arguments[] = {{"config_format", formats, "json", 0}};
    const struct http_model *model;
    if (read_query(connection, arguments, 1) != 0 ||
        (model = http_model_routes_find_loaded(connection)) == NULL)
        return -1;
    model->parts.write_info(model->parts.info_context, &connection->exchange.out);
    return 0;
}

/* --- Actions --- */

const char *http_control_rest_name(enum engine_rest rest) {
    static const char *const names[] = {
        [ENGINE_FALLING_ASLEEP] = "falling asleep",
        [ENGINE_ASLEEP] = "asleep",
        [ENGINE_WAKING] = "waking up",
    };
    return names[rest];
}

/* --- /admin/ --- */

#define MAX_BODY_BYTES 1024

_Static_assert(HTTP_ADMIN_CONNECTIONS *(HTTP_ADMIN_HEADER_BYTES + 4 * MAX_BODY_BYTES) <
                   HTTP_ADMIN_BYTES,
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
    flush_all(server, false);
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
    bool is_managed = http_models_are_managed(&server->models);
    if (server->has_failed ||
        (!is_managed && engine_has_failed(server->models.items[0]->parts.engine)))
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
    const struct http_model *model = http_model_routes_any_loaded(server);
    struct engine_stats stats = {0};
    if (model != NULL)
        engine_get_stats(model->parts.engine, &stats);
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

enum MHD_Result http_control_handle_admin(void *context, struct MHD_Connection *mhd,
                                          const char *url, const char *method, const char *version,
                                          const char *upload_data, size_t *upload_size,
                                          void **request_context) {
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

void http_control_complete_admin(void *context, struct MHD_Connection *mhd, void **request_context,
                                 enum MHD_RequestTerminationCode code) {
    struct admin_request *request = *request_context;
    if (!request)
        return;
    byte_buffer_finish(&request->body);
    free(request);
    *request_context = NULL;
}
