#include "server/program/command_serve_private.h"

#include "config/base/log.h"
#include "server/api/responses/response_store.h"
#include "server/program/engine_options.h"
#include "server/http/http_memory.h"
#include "server/process/service.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

int command_serve_http_read_origins(struct serve *serve, struct error *err) {
    const char *root = serve->options->root_path;
    if (root && (root[0] != '/' || root[strlen(root) - 1] == '/' || strpbrk(root, "?#% ")))
        return error_set(err, ERROR_CONFIG,
                         "option root-path \"%.100s\": must begin with / and not end with it, "
                         "without ?, #, %% and spaces",
                         root);
    return http_origin_rules_init(serve->options, &serve->origins, err);
}

int command_serve_http_open_keys(struct serve *serve, struct error *err) {
    const struct options *options = serve->options;
    if (api_keys_create(options->api_keys.items, options->api_keys.count, &serve->keys, err) != 0)
        return -1;
    for (int i = 0; i < options->api_keys.count; i++)
        if (strchr(options->api_keys.items[i], ',') != NULL)
            log_warning("api-key: key %d contains a comma and is one key; several are separate "
                        "words: --api-key KEY KEY",
                        i + 1);
    serve->reload.api_key_file = options->api_key_file;
    serve->reload.keys = serve->keys;
    return reload_keys(&serve->reload, err);
}

int command_serve_http_open_logs(struct serve *serve, struct error *err) {
    if (access_log_open(serve->options->access_log, &serve->reload.access_log, err) != 0)
        return -1;
    return trace_exporter_open(serve->options->otlp_traces_endpoint, &serve->traces, err);
}

int command_serve_http_open_tls(struct serve *serve, struct error *err) {
    const struct options *options = serve->options;
    const char *missing = options->ssl_keyfile ? "ssl-keyfile" : "ssl-ca-certs";
    serve->reload.tls =
        (struct tls_files){options->ssl_certfile, options->ssl_keyfile, options->ssl_ca_certs};
    if (options->ssl_certfile)
        return tls_credentials_load(&serve->reload.tls, &serve->credentials, err);
    if (options->ssl_keyfile || options->ssl_ca_certs)
        return error_set(err, ERROR_CONFIG, "option %s: needs ssl-certfile", missing);
    return 0;
}

int command_serve_http_fit_files(struct serve *serve, struct error *err) {
    return http_server_fit_files(serve->credentials != NULL, &serve->options->max_connections, err);
}

/* Who changes the port where there is a socket unit waits for it in vain. */
static int adopt_socket(struct serve *serve, int fd, struct error *err) {
    if (listen_socket_adopt(fd, &serve->socket, err) != 0)
        return -1;
    const char *name = serve->socket.name, *port = strrchr(name, ':');
    if (serve->options->uds || port == NULL || strtoll(port + 1, NULL, 10) != serve->options->port)
        log_info(
            "host, port and uds are not used: the service manager (quire.socket) listens on %s",
            name);
    return 0;
}

int command_serve_http_open_socket(struct serve *serve, struct error *err) {
    const struct options *options = serve->options;
    int fd;
    int passed = service_listen_socket(&fd, err);
    if (passed < 0)
        return -1;
    if (passed)
        return adopt_socket(serve, fd, err);
    if (options->uds)
        return listen_socket_open_unix("uds", options->uds, 0660, &serve->socket, err);
    return listen_socket_open_tcp(options->host, options->port, &serve->socket, err);
}

int command_serve_http_listen(struct serve *serve, struct error *err) {
    return listen_socket_listen(&serve->socket, err);
}

int command_serve_http_open_admin_socket(struct serve *serve, struct error *err) {
    const char *path = serve->options->admin_socket;
    return path == NULL ? 0
                        : listen_socket_open_unix("admin-socket", path, 0600, &serve->admin, err);
}

int command_serve_http_open_responses(struct serve *serve, struct error *err) {
    int64_t bytes = serve->options->response_store_bytes;
    if (bytes == 0)
        return 0;
    if (bytes < RESPONSE_STORE_MIN_BYTES)
        return error_set(err, ERROR_CONFIG,
                         "option response-store-bytes %lld: 0, or at least %d is allowed",
                         (long long)bytes, RESPONSE_STORE_MIN_BYTES);
    serve->responses = response_store_create((size_t)bytes);
    serve->only.responses = serve->responses;
    return serve->responses != NULL ? 0 : error_set(err, ERROR_MEMORY, "no memory for responses");
}

static void bound_stop(void *context, int64_t clients_ms) {
    stop_guard_arm(context, clients_ms);
}

static struct http_server_config http_config(struct serve *serve) {
    const struct options *options = serve->options;
    return (struct http_server_config){
        .listen_fd = serve->socket.fd,
        .is_socket_passed = serve->socket.is_passed,
        .admin_fd = serve->admin.fd,
        .credentials = serve->credentials,
        .max_connections = options->max_connections,
        .max_connections_per_ip = options->max_connections_per_ip,
        .max_body_bytes = (size_t)options->max_body_bytes,
        .allows_admin = options->enable_admin,
        .stop_begins = bound_stop,
        .stop_context = &serve->guard,
        .trusts_priority = options->trust_client_priority,
        .queue_timeout_ms = options->queue_timeout * 1000,
        .ping_interval_ms = options->sse_ping_interval * 1000,
        .shutdown_timeout_ms = options->shutdown_timeout * 1000,
        .drain_delay_ms = options->drain_delay * 1000,
        .watchdog_ms = options->watchdog_sec * 1000,
        .metrics_prefix = options->metrics_prefix,
        .shows_key_names = strcmp(options->metrics_key_names, "all") == 0,
        .root_path = options->root_path,
        .origins = &serve->origins,
        .access_log = serve->reload.access_log,
        .traces = serve->traces,
        .logs_prompts = options->log_prompts,
        .responses = serve->responses,
        .reload = reload_run,
        .reload_context = &serve->reload,
    };
}

/* All but the front end is there. */
static void complete_memory_table(struct serve *serve, struct http_server_config *config) {
    struct served_model *only = &serve->only;
    struct memory_table *table = &only->memory;
    table->executor = &only->info;
    table->response_bytes = (size_t)serve->options->response_store_bytes;
    table->http_bytes = http_memory_planned_bytes(serve->options);
    table->program_bytes =
        memory_table_program_bytes(&only->info, served_model_has_rank_process(only) ? 2 : 1, true);
    table->max_connections = serve->options->max_connections;
    config->planned_bytes = memory_table_total(table);
}

static void set_only(struct serve *serve, struct http_server_config *config,
                     struct http_models *models) {
    complete_memory_table(serve, config);
    config->max_api_calls =
        serve->only.info.limits.max_num_seqs + serve->options->max_queued_requests;
    serve->only.http.parts = serve->only.parts;
    models->items[models->count++] = &serve->only.http;
}

/* Each model's engine has a queue; what waits for a model is as much again. */
static void set_several(struct serve *serve, struct http_server_config *config,
                        struct http_models *models) {
    const struct options *options = serve->options;
    config->planned_bytes = serve->loader.memory_bytes + http_memory_planned_bytes(options) +
                            (size_t)options->response_store_bytes;
    config->max_api_calls = options->max_queued_requests;
    models->loader = model_loader_ops(&serve->loader);
    models->memory_bytes = serve->loader.memory_bytes;
    models->gpu_share = options->gpu_memory_utilization;
    models->max_awake = (int)options->models_max;
    models->turn_ms = options->model_turn_seconds * 1000;
    for (int i = 0; i < serve->loader.count; i++)
        models->items[models->count++] = &serve->loader.models[i]->http;
}

int command_serve_http_start(struct serve *serve, struct error *err) {
    struct http_server_config config = http_config(serve);
    struct http_models models = {0};
    if (serve->has_several)
        set_several(serve, &config, &models);
    else
        set_only(serve, &config, &models);
    if (listen_socket_is_loopback(&serve->socket) && !api_keys_are_needed(serve->keys))
        http_origin_rules_set_private(&serve->origins);
    if (serve->credentials)
        listen_socket_set_tls(&serve->socket);
    if (http_server_create(&config, &models, serve->keys, &serve->http, err) != 0)
        return -1;
    serve->reload.http = serve->http;
    return 0;
}
