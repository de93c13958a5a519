#include "server/program/command_serve_private.h"

#include "config/base/log.h"
#include "kernels/dtype.h"
#include "kernels/kv_type.h"
#include "models/config/sampling_fields.h"
#include "server/api/responses/response_store.h"
#include "server/program/engine_options.h"
#include "server/http/http_memory.h"
#include "server/process/service.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

int command_serve_http_read_origins(struct serve *serve, struct error *err) {
    const char *root = serve->options.root_path;
    if (root && (root[0] != '/' || root[strlen(root) - 1] == '/' || strpbrk(root, "?#% ")))
        return error_set(err, ERROR_CONFIG,
                         "option root-path \"%.100s\": must begin with / and not end with it, "
                         "without ?, #, %% and spaces",
                         root);
    return http_origin_rules_init(&serve->options, &serve->origins, err);
}

int command_serve_http_open_keys(struct serve *serve, struct error *err) {
    const struct options *options = &serve->options;
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
    if (access_log_open(serve->options.access_log, &serve->reload.access_log, err) != 0)
        return -1;
    return trace_exporter_open(serve->options.otlp_traces_endpoint, &serve->traces, err);
}

int command_serve_http_open_tls(struct serve *serve, struct error *err) {
    const struct options *options = &serve->options;
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
    return http_server_fit_files(serve->credentials != NULL, &serve->options.max_connections, err);
}

/* Who changes the port where there is a socket unit waits for it in vain. */
static int adopt_socket(struct serve *serve, int fd, struct error *err) {
    if (listen_socket_adopt(fd, &serve->socket, err) != 0)
        return -1;
    const char *name = serve->socket.name, *port = strrchr(name, ':');
    if (serve->options.uds || port == NULL || strtoll(port + 1, NULL, 10) != serve->options.port)
        log_info(
            "host, port and uds are not used: the service manager (quire.socket) listens on %s",
            name);
    return 0;
}

int command_serve_http_open_socket(struct serve *serve, struct error *err) {
    const struct options *options = &serve->options;
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
    const char *path = serve->options.admin_socket;
    return path == NULL ? 0
                        : listen_socket_open_unix("admin-socket", path, 0600, &serve->admin, err);
}

int command_serve_http_open_responses(struct serve *serve, struct error *err) {
    int64_t bytes = serve->options.response_store_bytes;
    if (bytes == 0)
        return 0;
    if (bytes < RESPONSE_STORE_MIN_BYTES)
        return error_set(err, ERROR_CONFIG,
                         "option response-store-bytes %lld: 0, or at least %d is allowed",
                         (long long)bytes, RESPONSE_STORE_MIN_BYTES);
    serve->responses = response_store_create((size_t)bytes);
    return serve->responses != NULL ? 0 : error_set(err, ERROR_MEMORY, "no memory for responses");
}

static void set_model_name(struct serve *serve) {
    if (serve->model_name[0] == '\0')
        api_context_model_name(serve->options.model, serve->model_name, sizeof(serve->model_name));
}

/* Sets the names that clients use; "*" stands for any. */
static void set_served_names(struct serve *serve, struct api_context *context) {
    const struct option_list *given = &serve->options.served_model_names;
    for (int i = 0; i < given->count; i++) {
        if (strcmp(given->items[i], "*") == 0)
            context->takes_any_model = true;
        else
            serve->served_names[context->num_model_names++] = given->items[i];
    }
    if (context->num_model_names == 0)
        serve->served_names[context->num_model_names++] = serve->model_name;
    context->model_names = serve->served_names;
}

static struct sampling_settings default_settings(const struct serve *serve) {
    static const struct sampling_settings neutral = SAMPLING_SETTINGS_NEUTRAL;
    return strcmp(serve->options.generation_config, "none") == 0
               ? neutral
               : sampling_fields_defaults(&serve->model->generation);
}

static enum pooling default_pooling(const struct serve *serve) {
    const char *given = serve->options.pooling;
    if (strcmp(given, "auto") == 0)
        return serve->model->pooling == MODEL_POOLING_MEAN ? POOLING_MEAN : POOLING_LAST;
    return strcmp(given, "mean") == 0 ? POOLING_MEAN : POOLING_LAST;
}

void command_serve_http_set_context(struct serve *serve) {
    const struct options *options = &serve->options;
    set_model_name(serve);
    serve->context = (struct api_context){
        .limits = &serve->info.limits,
        .tokenizer = serve->tokenizer,
        .chat = serve->chat,
        .responses = serve->responses,
        .tenant = -1,
        .grammars = grammar_cache_create(GRAMMAR_CACHE_MAX_BYTES),
        .created = time(NULL),
        .max_prompts =
            (int32_t)(options->max_queued_requests < MAX_PROMPTS ? options->max_queued_requests
                                                                 : MAX_PROMPTS),
        .max_n = (int32_t)options->max_n,
        .max_choices = engine_options_call_choices(options),
        .max_prompt_tokens = options->max_queued_tokens,
        .sampling = default_settings(serve),
        .seed = (uint64_t)options->seed,
        .num_seeds = &serve->num_seeds,
        .system_fingerprint = serve->fingerprint,
        .embedding_sizes = &serve->model->embedding_sizes,
        .scores = serve->scores,
        .refuses_generation = !serve->model->generates || serve->scores != NULL,
        .has_raw_embeddings = serve->model->has_raw_embeddings,
        .pooling = default_pooling(serve),
        .trusts_chat_template = options->trust_request_chat_template,
        .rejects_unknown_params = strcmp(options->unknown_params, "reject") == 0,
        .ignores_schema_keywords = strcmp(options->unsupported_schema_keywords, "ignore") == 0,
    };
    set_served_names(serve, &serve->context);
}

static void write_server_info(void *context, struct byte_buffer *out) {
    server_info_write(context, out);
}

static void bound_stop(void *context, int64_t clients_ms) {
    stop_guard_arm(context, clients_ms);
}

static struct http_server_config http_config(struct serve *serve) {
    const struct options *options = &serve->options;
    return (struct http_server_config){
        .listen_fd = serve->socket.fd,
        .is_socket_passed = serve->socket.is_passed,
        .admin_fd = serve->admin.fd,
        .credentials = serve->credentials,
        .wake_fd = serve->wake_fd,
        .max_connections = options->max_connections,
        .max_connections_per_ip = options->max_connections_per_ip,
        .max_api_calls = serve->info.limits.max_num_seqs + options->max_queued_requests,
        .max_body_bytes = (size_t)options->max_body_bytes,
        .allows_admin = options->enable_admin,
        .stop_begins = bound_stop,
        .stop_context = &serve->guard,
        .write_info = write_server_info,
        .info_context = &serve->server_info,
        .trusts_priority = options->trust_client_priority,
        .queue_timeout_ms = options->queue_timeout * 1000,
        .ping_interval_ms = options->sse_ping_interval * 1000,
        .shutdown_timeout_ms = options->shutdown_timeout * 1000,
        .drain_delay_ms = options->drain_delay * 1000,
        .watchdog_ms = options->watchdog_sec * 1000,
        .metrics_facts = {.prefix = options->metrics_prefix,
                          .model_name = serve->context.model_names[0],
                          .device = serve->info.device,
                          .cache_dtype = kv_type_name(serve->info.kv_type),
                          .has_prefix_caching = options->enable_prefix_caching,
                          .num_ranks = serve->info.num_ranks,
                          .rank_memory = serve->info.rank_memory,
                          .adapters = serve->context.adapters,
                          .max_adapters = serve->info.lora.num_slots},
        .shows_key_names = strcmp(options->metrics_key_names, "all") == 0,
        .root_path = options->root_path,
        .origins = &serve->origins,
        .access_log = serve->reload.access_log,
        .traces = serve->traces,
        .kv_events = serve->kv_events,
        .logs_prompts = options->log_prompts,
        .reload = reload_run,
        .reload_context = &serve->reload,
        .rank_process = serve->info.rank_process > 0 ? serve->executor : NULL,
    };
}

/* All but the front end is there. */
static void complete_memory_table(struct serve *serve, const struct http_server_config *http) {
    struct memory_table *table = &serve->memory;
    table->executor = &serve->info;
    table->response_bytes = (size_t)serve->options.response_store_bytes;
    table->http_bytes = http_memory_planned_bytes(&serve->options);
    table->program_bytes = memory_table_program_bytes(
        &serve->info, engine_options_have_rank_process(&serve->options) ? 2 : 1, true);
    table->max_connections = http->max_connections;
}

int command_serve_http_start(struct serve *serve, struct error *err) {
    struct http_server_config config = http_config(serve);
    complete_memory_table(serve, &config);
    serve->server_info = (struct server_info){&serve->options, &serve->memory, &serve->context,
                                              draft_model_path(&serve->draft),
                                              dtype_name(serve->info.activation_dtype)};
    config.planned_bytes = memory_table_total(&serve->memory);
    if (listen_socket_is_loopback(&serve->socket) && !api_keys_are_needed(serve->keys))
        http_origin_rules_set_private(&serve->origins);
    if (serve->credentials)
        listen_socket_set_tls(&serve->socket);
    if (http_server_create(&config, serve->engine, &serve->context, serve->keys, &serve->http,
                           err) != 0)
        return -1;
    serve->reload.http = serve->http;
    return 0;
}
