/* `quire serve`: the order of start and stop.
 *
 * The model and the device come first because they take longest and fail most; then the socket, so
 * that clients can already wait in its backlog; then the engine and one token through it; only then
 * is the service ready. Stopping is the same in reverse. Signals are blocked from the start, before
 * any thread exists; those that stop are taken between the steps of loading. */
#include "server/command_line.h"

#include "config/base/check.h"
#include "config/base/clock.h"
#include "config/build_hash.h"
#include "config/log.h"
#include "config/options.h"
#include "engine/draft/ngram_drafter.h"
#include "engine/engine.h"
#include "engine/executor.h"
#include "engine/distributed_executor.h"
#include "engine/distributed_rank.h"
#include "engine/process_executor.h"
#include "engine/record/recorder.h"
#include "kernels/dtype.h"
#include "kernels/kv_type.h"
#include "models/files/input_file.h"
#include "models/model.h"
#include "models/sampling_fields.h"
#include "models/config/model_parts.h"
#include "server/api/chat/chat_model.h"
#include "server/command_fingerprint.h"
#include "server/command_pull.h"
#include "server/command_record.h"
#include "server/command_verify.h"
#include "server/engine_options.h"
#include "server/http/http_capacity.h"
#include "server/http/http_server.h"
#include "server/http/listen_socket.h"
#include "server/kv_events/kv_event_publisher.h"
#include "server/load_progress.h"
#include "server/memory_table.h"
#include "server/api/api_context.h"
#include "server/api/responses/response_store.h"
#include "server/record_file.h"
#include "server/reload.h"
#include "server/self_test.h"
#include "server/server_info.h"
#include "server/service.h"
#include "server/serve_ranks.h"
#include "server/signals.h"
#include "server/vocabulary_loader.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>

/* A client that takes nothing is dropped by the HTTP layer long before; this bounds how long one
 * that takes a byte now and then keeps its KV blocks. */
#define STALL_TIMEOUT_MS 120000
#define SELF_TEST_TIMEOUT_MS 120000
#define LOAD_TIMEOUT_S 600

struct serve {
    int64_t started_ns;
    struct options options;
    struct model *model;
    struct tokenizer *tokenizer;
    struct vocabulary_loader vocabulary;
    struct command_verify verify;
    struct chat_model *chat;
    struct transport *transport; /* to the other ranks; NULL: they are threads, if there are any */
    struct executor *executor;
    struct executor_config executor_config;
    struct load_progress load_progress;
    struct executor_info info; /* of the executor; its limits are everyone's */
    int wake_fd;
    struct listen_socket socket;
    struct listen_socket admin;
    struct drafter *drafter;         /* NULL: nothing is drafted */
    struct record_file *record_file; /* NULL: nothing is recorded */
    struct recorder *recorder;       /* likewise */
    struct engine *engine;
    struct memory_table memory;
    struct api_keys *keys;
    struct reload reload;
    struct trace_exporter *traces;
    struct kv_event_config kv_event_config;
    struct kv_event_publisher *kv_events; /* NULL: nothing is published */
    struct tls_credentials *credentials;  /* NULL: plain HTTP */
    char model_name[256];                 /* of one that was given none; "": not known yet */
    char *default_names[1];               /* -> model_name */
    char fingerprint[FINGERPRINT_BYTES];
    struct response_store *responses; /* NULL: none are kept */
    struct api_context context;
    struct server_info server_info;
    struct http_origin_rules origins;
    struct http_server *http;
};

static double ms_since(int64_t start_ns) {
    return (double)(clock_now_ns() - start_ns) / (double)CLOCK_NS_PER_MS;
}

static int read_origins(struct serve *serve, struct error *err) {
    const char *root = serve->options.root_path;
    if (root && (root[0] != '/' || root[strlen(root) - 1] == '/' || strpbrk(root, "?#% ")))
        return error_set(err, ERROR_CONFIG,
                         "option root-path \"%.100s\": must begin with / and not end with it, "
                         "without ?, #, %% and spaces",
                         root);
    return http_origin_rules_init(&serve->options, &serve->origins, err);
}

static int open_keys(struct serve *serve, struct error *err) {
    const struct options *options = &serve->options;
    if (api_keys_create(options->api_keys.items, options->api_keys.count, &serve->keys, err) != 0)
        return -1;
    serve->reload.api_key_file = options->api_key_file;
    serve->reload.keys = serve->keys;
    return reload_keys(&serve->reload, err);
}

static int open_logs(struct serve *serve, struct error *err) {
    if (access_log_open(serve->options.access_log, &serve->reload.access_log, err) != 0)
        return -1;
    return trace_exporter_open(serve->options.otlp_traces_endpoint, &serve->traces, err);
}

static int read_kv_events(struct serve *serve, struct error *err) {
    return kv_event_config_read(&serve->options, &serve->kv_event_config, err);
}

static int open_kv_events(struct serve *serve, struct error *err) {
    return kv_event_publisher_open(&serve->kv_event_config, serve->info.limits.block_size,
                                   &serve->kv_events, err);
}

static int open_tls(struct serve *serve, struct error *err) {
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

/* A name of the hub becomes the path of what lies in the cache. */
static int find_model(struct serve *serve, struct error *err) {
    struct hub_reference reference;
    struct hub_model model;
    if (!command_pull_is_reference(serve->options.model))
        return 0;
    if (hub_reference_parse(serve->options.model, &reference, err) != 0 ||
        command_pull_model(&reference, HUB_CACHE_FIRST, &model, err) != 0)
        return -1;
    char *path = strdup(model.path);
    if (path == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for the model's path");
    free(serve->options.model);
    serve->options.model = path;
    snprintf(serve->model_name, sizeof(serve->model_name), "%s", reference.repository);
    log_info("model      %s at %.12s, in %s", reference.repository, model.commit, path);
    service_extend_timeout(LOAD_TIMEOUT_S);
    return 0;
}

static int open_model(struct serve *serve, struct error *err) {
    const struct options *options = &serve->options;
    if (command_open_model(options->model, &serve->model, &serve->tokenizer, err) != 0)
        return -1;
    return engine_options_executor(options, serve->model, &serve->executor_config, err);
}

static int start_vocabulary(struct serve *serve, struct error *err) {
    return vocabulary_loader_start(&serve->vocabulary, serve->tokenizer, err);
}

static int await_vocabulary(struct serve *serve, struct error *err) {
    return vocabulary_loader_wait(&serve->vocabulary, err);
}

static int start_verify(struct serve *serve, struct error *err) {
    return serve->options.verify_weights
               ? command_verify_start(&serve->verify, serve->model->file, err)
               : 0;
}

static int await_verify(struct serve *serve, struct error *err) {
    char line[512];
    if (!serve->options.verify_weights)
        return 0;
    if (command_verify_wait(&serve->verify, err) != 0)
        return -1;
    command_verify_describe(&serve->verify, line, sizeof(line));
    log_write(serve->verify.unknown == NULL ? LOG_INFO : LOG_WARNING, "verify-weights: %s", line);
    return 0;
}

/* A file's template takes the place of the model's. */
static int read_chat_template(struct serve *serve, struct error *err) {
    const char *path = serve->options.chat_template;
    struct text source = {0};
    struct error why = {0};
    int status = -1;
    char *data = input_file_read_all(path, CHAT_TEMPLATE_MAX_BYTES, &source.length, &why);
    source.data = data;
    if (data != NULL)
        status = model_parts_set_chat_template(&serve->model->chat_template, source, path, &why);
    free(data);
    if (status == 0)
        return 0;
    return error_set(err, why.code == ERROR_MEMORY ? ERROR_MEMORY : ERROR_CONFIG,
                     "chat-template: %.480s", why.message);
}

/* The model's own template that cannot be used is no reason not to serve completions; one that was
 * requested is. */
static int open_chat(struct serve *serve, struct error *err) {
    bool is_given = serve->options.chat_template != NULL;
    if (is_given && read_chat_template(serve, err) != 0)
        return -1;
    const struct chat_model_config config = {
        .chat_template = serve->model->chat_template,
        .tool_template = is_given ? NULL : serve->model->tool_chat_template,
        .tool_call_parser = serve->options.tool_call_parser,
        .reasoning_parser = serve->options.reasoning_parser,
    };
    if (chat_model_create(serve->tokenizer, &config, &serve->chat, err) != 0)
        return -1;
    if (is_given && serve->chat->chat_template == NULL)
        return error_set(err, ERROR_CONFIG, "chat-template: %.200s: %s",
                         serve->options.chat_template, serve->chat->problem);
    if (serve->chat->problem[0] != '\0')
        log_warning("%s; --chat-template gives another one", serve->chat->problem);
    return 0;
}

static void show_load(void *context, size_t bytes_read, size_t num_bytes) {
    struct load_progress *progress = context;
    char line[LOAD_PROGRESS_LINE_BYTES];
    enum load_progress_kind kind =
        load_progress_update(progress, bytes_read, num_bytes, clock_now_ns(), line);
    if (kind == LOAD_PROGRESS_STATUS)
        log_status("%s", line);
    else if (kind == LOAD_PROGRESS_LOG)
        log_info("%s", line);
}

/* The others compute what it says, and do not come back. */
static int open_ranks(struct serve *serve, struct error *err) {
    if (serve_ranks_open(&serve->options, &serve->transport, err) != 0)
        return -1;
    if (serve->transport == NULL || distributed_rank_number(serve->transport) == 0)
        return 0;
    if (find_model(serve, err) != 0)
        return -1;
    exit(serve_ranks_compute(&serve->options, serve->transport));
}

static int create_executor(struct serve *serve, struct error *err) {
    static const char *const argv[] = {"quire", "rank-process", NULL};
    const struct process_executor_config config = {
        .program = "/proc/self/exe",
        .argv = argv,
        .model_path = serve->options.model,
        .executor = serve->executor_config,
    };
    if (serve->transport != NULL)
        return distributed_executor_create(serve->model, &serve->executor_config, &serve->info,
                                           &serve->executor, err);
    if (engine_options_have_rank_process(&serve->options))
        return process_executor_create(&config, &serve->info, &serve->executor, err);
    return executor_create(serve->model, &serve->executor_config, &serve->info, &serve->executor,
                           err);
}

static int open_executor(struct serve *serve, struct error *err) {
    struct executor_config *config = &serve->executor_config;
    load_progress_start(&serve->load_progress, clock_now_ns(), log_is_terminal());
    config->progress = (struct weights_progress){show_load, &serve->load_progress};
    config->transport = serve->transport;
    config->build = build_hash();
    if (create_executor(serve, err) != 0)
        return -1;
    if (config->dtype == DTYPE_F16 && !serve->info.has_dedicated_memory)
        log_warning("dtype %s: the CPU computes in float", serve->options.dtype);
    return command_fingerprint(config, &serve->info, serve->model, build_hash(), serve->fingerprint,
                               err);
}

static int open_socket(struct serve *serve, struct error *err) {
    const struct options *options = &serve->options;
    int fd;
    int passed = service_listen_socket(&fd, err);
    if (passed < 0)
        return -1;
    if (passed)
        return listen_socket_adopt(fd, &serve->socket, err);
    if (options->uds)
        return listen_socket_open_unix("uds", options->uds, 0660, &serve->socket, err);
    return listen_socket_open_tcp(options->host, options->port, &serve->socket, err);
}

/* Whoever may write to it commands the server: its user alone. */
static int open_admin_socket(struct serve *serve, struct error *err) {
    const char *path = serve->options.admin_socket;
    return path == NULL ? 0
                        : listen_socket_open_unix("admin-socket", path, 0600, &serve->admin, err);
}

static void wake_http(void *context) {
    const struct serve *serve = context;
    const uint64_t one = 1;
    if (write(serve->wake_fd, &one, sizeof(one)) < 0 && errno != EAGAIN)
        log_error("cannot wake the I/O thread: %s", strerror(errno));
}

static int start_recording(struct serve *serve, const struct engine_config *engine,
                           struct error *err) {
    const struct options *options = &serve->options;
    if (options->record == NULL)
        return 0;
    if (record_file_open(options->record, &serve->record_file, err) != 0)
        return -1;
    const struct recorder_config config = {.max_bytes = options->record_max_bytes / 2,
                                           .write = record_file_write,
                                           .context = serve->record_file};
    struct record_header *header = malloc(sizeof(*header));
    if (header == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for the recording");
    int status = command_record_describe(options, &serve->info, engine, header, err);
    if (status == 0)
        status = recorder_create(&config, header, &serve->recorder, err);
    free(header);
    return status;
}

static int start_engine(struct serve *serve, struct error *err) {
    struct engine_config config = engine_options_read(&serve->options, &serve->info);
    if (engine_options_drafter(&serve->options, &serve->drafter, err) != 0)
        return -1;
    config.drafter = serve->drafter;
    config.vocabulary = serve->vocabulary.vocabulary;
    config.stall_timeout_ms = STALL_TIMEOUT_MS;
    config.wake = wake_http;
    config.wake_context = serve;
    if (start_recording(serve, &config, err) != 0)
        return -1;
    config.recorder = serve->recorder;
    config.kv_events = kv_event_publisher_sink(serve->kv_events);
    serve->memory.engine_bytes = engine_memory_bytes(&config, serve->tokenizer);
    serve->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (serve->wake_fd < 0)
        return error_set(err, ERROR_IO, "eventfd: %s", strerror(errno));
    return engine_create(&config, serve->executor, serve->tokenizer, &serve->engine, err);
}

static int test_engine(struct serve *serve, struct error *err) {
    int32_t bos = tokenizer_bos(serve->tokenizer);
    return self_test_run(serve->engine, bos >= 0 ? bos : 0, serve->wake_fd, SELF_TEST_TIMEOUT_MS,
                         err);
}

static void set_model_name(struct serve *serve) {
    if (serve->model_name[0] == '\0')
        api_context_model_name(serve->options.model, serve->model_name, sizeof(serve->model_name));
    serve->default_names[0] = serve->model_name;
}

static struct sampling_settings default_settings(const struct serve *serve) {
    struct sampling_settings settings = SAMPLING_SETTINGS_NEUTRAL;
    if (strcmp(serve->options.generation_config, "none") != 0)
        sampling_fields_merge(&serve->model->generation, &settings);
    return settings;
}

static int open_responses(struct serve *serve, struct error *err) {
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

static void set_context(struct serve *serve) {
    const struct options *options = &serve->options;
    bool has_names = options->served_model_names.count > 0;
    set_model_name(serve);
    serve->context = (struct api_context){
        .limits = &serve->info.limits,
        .tokenizer = serve->tokenizer,
        .chat = serve->chat,
        .responses = serve->responses,
        .tenant = -1,
        .grammars = grammar_cache_create(GRAMMAR_CACHE_MAX_BYTES),
        .model_names = has_names ? options->served_model_names.items : serve->default_names,
        .num_model_names = has_names ? options->served_model_names.count : 1,
        .created = time(NULL),
        .max_prompts =
            (int32_t)(options->max_queued_requests < MAX_PROMPTS ? options->max_queued_requests
                                                                 : MAX_PROMPTS),
        .max_n = (int32_t)options->max_n,
        .max_choices = engine_options_call_choices(options),
        .max_prompt_tokens = options->max_queued_tokens,
        .sampling = default_settings(serve),
        .seed = (uint64_t)options->seed,
        .system_fingerprint = serve->fingerprint,
        .embedding_sizes = &serve->model->embedding_sizes,
        .pooling = strcmp(options->pooling, "mean") == 0 ? POOLING_MEAN : POOLING_LAST,
        .trusts_chat_template = options->trust_request_chat_template,
        .rejects_unknown_params = strcmp(options->unknown_params, "reject") == 0,
    };
}

static void write_server_info(void *context, struct byte_buffer *out) {
    server_info_write(context, out);
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
        .write_info = write_server_info,
        .info_context = &serve->server_info,
        .trusts_priority = options->trust_client_priority,
        .queue_timeout_ms = options->queue_timeout * 1000,
        .shutdown_timeout_ms = options->shutdown_timeout * 1000,
        .drain_delay_ms = options->drain_delay * 1000,
        .watchdog_ms = options->watchdog_sec * 1000,
        .metrics_facts = {.prefix = options->metrics_prefix,
                          .model_name = serve->context.model_names[0],
                          .device = serve->info.device,
                          .cache_dtype = kv_type_name(serve->info.kv_type),
                          .has_prefix_caching = options->enable_prefix_caching,
                          .num_ranks = serve->info.num_ranks,
                          .rank_memory = serve->info.rank_memory},
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
    table->http_bytes = http_capacity_bytes(&serve->options);
    table->program_bytes = memory_table_program_bytes(&serve->info, true);
    table->max_connections = http->max_connections;
}

static int start_http(struct serve *serve, struct error *err) {
    struct http_server_config config = http_config(serve);
    complete_memory_table(serve, &config);
    serve->server_info = (struct server_info){&serve->options, &serve->memory, &serve->context,
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

static void log_line(void *context, const char *line) {
    log_info("%s", line);
}

static void log_chat(const struct serve *serve) {
    const struct chat_model *chat = serve->chat;
    if (chat->chat_template != NULL)
        log_info("chat       template of %zu bytes, tool calls %s%s, reasoning %s",
                 strlen(serve->model->chat_template), tool_call_format_name(chat->tools),
                 chat->writes_tools ? " (described in text)" : "",
                 reasoning_format_name(chat->reasoning));
}

/* The steps of starting, in order. */
static int (*const steps[])(struct serve *serve, struct error *err) = {
    open_ranks,     read_origins,     read_kv_events, open_logs,    open_keys,
    open_tls,       open_responses,   find_model,     open_model,   open_chat,
    start_verify,   start_vocabulary, open_executor,  open_socket,  open_admin_socket,
    open_kv_events, await_vocabulary, await_verify,   start_engine, test_engine,
    start_http,
};

/* 1 when everything runs, 0 when a signal came first, -1 with err. */
static int start(struct serve *serve, struct error *err) {
    service_extend_timeout(LOAD_TIMEOUT_S);
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        if (steps[i](serve, err) != 0) {
            if (err->code != ERROR_INTERRUPTED)
                return -1;
            log_info("%s", err->message);
            return 0;
        }
        if (steps[i] == open_executor)
            set_context(serve);
        if (signals_take_stop())
            return 0;
    }
    memory_table_write(&serve->memory, log_line, NULL);
    log_chat(serve);
    return 1;
}

static int run(struct serve *serve) {
    service_ready();
    log_info("listening on %s, model %s, ready after %.0f ms", serve->socket.name,
             serve->context.model_names[0], ms_since(serve->started_ns));
    enum http_stop stop = http_server_run(serve->http);
    log_info("stopped");
    return stop == HTTP_STOPPED ? EX_OK : EX_SOFTWARE;
}

static void close_logs(struct serve *serve) {
    access_log_close(serve->reload.access_log);
    serve->reload.access_log = NULL;
    trace_exporter_close(serve->traces);
    serve->traces = NULL;
}

/* Ends the process at once, status 70: a device that hangs keeps whoever gives something back to
 * it, at exit(3) too. Clients have their answers, and the system takes the rest. */
static _Noreturn void leave(struct serve *serve) {
    listen_socket_close(&serve->socket);
    listen_socket_close(&serve->admin);
    close_logs(serve);
    fflush(NULL);
    _exit(EX_SOFTWARE);
}

static bool device_hangs(const struct serve *serve) {
    return serve->executor != NULL && executor_has_hung(serve->executor);
}

static void finish(struct serve *serve) {
    if (device_hangs(serve))
        leave(serve);
    http_server_destroy(serve->http);
    close_logs(serve);
    engine_destroy(serve->engine);
    if (device_hangs(serve)) /* found by the engine while it ended */
        leave(serve);
    kv_event_publisher_close(serve->kv_events);
    recorder_destroy(serve->recorder);
    record_file_close(serve->record_file);
    if (serve->drafter)
        serve->drafter->ops->destroy(serve->drafter);
    if (serve->executor)
        serve->executor->ops->destroy(serve->executor);
    if (serve->executor && serve->transport) /* else the other ranks do not come to it */
        distributed_rank_close(serve->transport);
    listen_socket_close(&serve->socket);
    listen_socket_close(&serve->admin);
    api_keys_destroy(serve->keys);
    tls_credentials_unref(serve->credentials);
    if (serve->wake_fd >= 0)
        close(serve->wake_fd);
    response_store_destroy(serve->responses);
    grammar_cache_destroy(serve->context.grammars);
    vocabulary_loader_finish(&serve->vocabulary);
    command_verify_finish(&serve->verify);
    chat_model_destroy(serve->chat);
    tokenizer_close(serve->tokenizer);
    model_close(serve->model);
    options_finish(&serve->options);
}

int command_serve(int argc, char *const *argv) {
    struct serve serve = {.wake_fd = -1, .socket = {.fd = -1}, .admin = {.fd = -1}};
    struct error err = {0};
    serve.started_ns = clock_now_ns();
    if (command_wants_help(argc, argv)) {
        fputs(options_help(), stdout);
        return EX_OK;
    }
    signals_block();
    log_file_find(&serve.reload.log);
    if (options_load(argc, argv, environ, &serve.options, &err) != 0) {
        log_error("%s", err.message);
        return command_exit_status(&err);
    }
    options_hide_secrets(argc, argv);
    enum log_level log_level;
    CHECK(log_level_parse(serve.options.log_level, &log_level));
    log_set_level(log_level);
    options_warn_of_variables(environ);
    int started = start(&serve, &err);
    if (started < 0)
        log_error("%s", err.message);
    int status = started < 0 ? command_exit_status(&err) : started == 0 ? EX_OK : run(&serve);
    finish(&serve);
    if (serve.transport != NULL && serve.executor == NULL) { /* is not closed (transport.h) */
        fflush(NULL);
        _exit(status);
    }
    return status;
}
