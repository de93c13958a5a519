/* `quire serve`: the order of start and stop.
 *
 * First everything that takes no time and can fail: files, ports and options, so that nobody waits
 * for a model to be downloaded or read before they learn of it. The port is bound, but connections
 * are refused until the weights are loaded; then clients can wait in the socket's backlog. Then the
 * model's headers, by which the memory is planned, the weights, the engine and one token through
 * it; only then is the service ready. Stopping is the same in reverse. Signals are blocked from the
 * start, before any thread exists; those that stop are taken between the steps of loading. */
#include "server/program/command_line.h"

#include "config/base/check.h"
#include "config/base/clock.h"
#include "config/base/help_text.h"
#include "config/base/log.h"
#include "engine/draft/ngram_drafter.h"
#include "kernels/transport.h"
#include "server/program/command_serve_private.h"
#include "server/program/serve_ranks.h"
#include "server/process/service.h"
#include "server/process/signals.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

static double ms_since(int64_t start_ns) {
    return (double)(clock_now_ns() - start_ns) / (double)CLOCK_NS_PER_MS;
}

/* How many models that do not say how large their KV cache is fit the memory together. */
#define MOST_SHARES 3

/* Finds all models, and loads those that are to be loaded before the first request. */
static int start_loader(struct serve *serve, struct error *err) {
    struct model_list *list = &serve->list;
    struct model_loader *loader = &serve->loader;
    int most = serve->options->models_max > 0 ? (int)serve->options->models_max : MOST_SHARES;
    int count = (int)list->count;
    if (!serve->has_several)
        return 0;
    if (model_loader_start(loader, (size_t)serve->options->memory, count < most ? count : most,
                           err) != 0)
        return -1;
    for (int i = 0; i < count; i++) {
        struct served_model *served =
            model_loader_add(loader, &list->models[i], serve->responses, err);
        if (served == NULL || model_loader_find(served, err) != 0)
            return -1;
    }
    for (int i = 0; i < count; i++) {
        if (list->models[i].is_preloaded && model_loader_load(loader, loader->models[i], err) != 0)
            return -1;
        if (signals_take_stop())
            return error_set(err, ERROR_INTERRUPTED, "stopped while models were loaded");
    }
    return 0;
}

int command_serve_open_ranks(struct serve *serve, struct error *err) {
    if (serve_ranks_open(serve->options, &serve->transport, err) != 0)
        return -1;
    if (serve->transport != NULL && serve->has_several)
        return error_set(err, ERROR_CONFIG,
                         "several models: ranks that mpirun has started compute one; give it as "
                         "the only --model");
    serve->only.transport = serve->transport;
    if (serve->transport == NULL || serve->transport->rank == 0)
        return 0;
    if (served_model_find(&serve->only, err) != 0)
        return -1;
    exit(serve_ranks_compute(serve->options, serve->transport));
}

/* Not for a rank that mpirun has started in addition to the first: it ends with that. */
static int start_guard(struct serve *serve, struct error *err) {
    return stop_guard_start(&serve->guard, err);
}

static int set_context(struct served_model *served, struct error *err) {
    served_model_set_names(served);
    served_model_set_context(served);
    return 0;
}

/* Steps of starting, in order: of the server, or of its only model. */
static const struct start_step {
    int (*of_server)(struct serve *serve, struct error *err);
    served_model_step *of_model;
    const char *activity; /* NULL: it "starts" */
} steps[] = {
    {command_serve_open_ranks, NULL, NULL},
    {start_guard, NULL, NULL},
    {command_serve_http_read_origins, NULL, NULL},
    {command_serve_http_open_logs, NULL, NULL},
    {command_serve_http_open_keys, NULL, NULL},
    {command_serve_http_open_tls, NULL, NULL},
    {command_serve_http_open_responses, NULL, NULL},
    {command_serve_http_fit_files, NULL, NULL},
    {command_serve_http_open_socket, NULL, NULL},
    {command_serve_http_open_admin_socket, NULL, NULL},
    {NULL, served_model_read_options, NULL},
    {NULL, served_model_open_kv_events, NULL},
    {NULL, served_model_check_record, NULL},
    {NULL, served_model_find, NULL},
    {NULL, served_model_open, NULL},
    {NULL, served_model_plan, NULL},
    {NULL, served_model_open_tokenizer, NULL},
    {NULL, served_model_open_scores, NULL},
    {NULL, served_model_open_chat, NULL},
    {NULL, served_model_start_verify, NULL},
    {NULL, served_model_start_vocabulary, NULL},
    {NULL, served_model_open_executor, "loads the weights"},
    {NULL, set_context, NULL},
    {start_loader, NULL, NULL},
    {command_serve_http_listen, NULL, NULL},
    {NULL, served_model_await_vocabulary, NULL},
    {NULL, served_model_await_verify, NULL},
    {NULL, served_model_open_kv_store, NULL},
    {NULL, served_model_start_engine, NULL},
    {NULL, served_model_test, "tests the engine"},
    {NULL, served_model_load_adapters, NULL},
    {NULL, served_model_show, NULL},
    {command_serve_http_start, NULL, NULL},
};

/* 1 when everything runs, 0 when a signal came first, -1 with err. */
static int start(struct serve *serve, struct error *err) {
    service_extend_timeout(SERVED_MODEL_LOAD_TIMEOUT_S);
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        const struct start_step *step = &steps[i];
        if (step->of_model != NULL && serve->has_several)
            continue;
        stop_guard_note(&serve->guard, step->activity != NULL ? step->activity : "starts");
        int status = step->of_model != NULL ? step->of_model(&serve->only, err)
                                            : step->of_server(serve, err);
        if (status != 0) {
            if (err->code != ERROR_INTERRUPTED)
                return -1;
            log_info("%s", err->message);
            return 0;
        }
        if (signals_take_stop()) {
            stop_guard_arm(&serve->guard, 0);
            return 0;
        }
    }
    command_serve_log_start(serve);
    return 1;
}

static int run(struct serve *serve) {
    const struct options *options = serve->options;
    stop_guard_note(&serve->guard, "answers clients");
    stop_guard_serve(&serve->guard, (options->drain_delay + options->shutdown_timeout) * 1000);
    service_ready();
    char several[32];
    snprintf(several, sizeof(several), "%d models", serve->loader.count);
    log_info("listening on %s, %s%s, ready after %.0f ms", serve->socket.name,
             serve->has_several ? "" : "model ",
             serve->has_several ? several : serve->only.http.names[0], ms_since(serve->started_ns));
    enum http_stop stop = http_server_run(serve->http);
    stop_guard_arm(&serve->guard, 0);
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

static void close_models(struct serve *serve) {
    model_loader_stop(&serve->loader);
    for (int i = 0; i < serve->loader.count; i++)
        if (!served_model_close(serve->loader.models[i], &serve->guard))
            leave(serve);
    if (!served_model_close(&serve->only, &serve->guard))
        leave(serve);
    if (serve->transport != NULL &&
        serve->has_executor) /* else the other ranks do not come to it */
        serve->transport->ops->destroy(serve->transport);
    model_loader_finish(&serve->loader);
}

static void finish(struct serve *serve) {
    if (served_model_hangs(&serve->only))
        leave(serve);
    serve->has_executor = serve->only.executor != NULL;
    stop_guard_note(&serve->guard, "closes the front end");
    http_server_destroy(serve->http);
    close_logs(serve);
    close_models(serve);
    listen_socket_close(&serve->socket);
    listen_socket_close(&serve->admin);
    api_keys_destroy(serve->keys);
    tls_credentials_unref(serve->credentials);
    response_store_destroy(serve->responses);
    model_options_finish(&serve->list);
    stop_guard_finish(&serve->guard);
}

/* --help at argv[at], or --help GROUP. */
static int help(int argc, char *const *argv, int at) {
    struct byte_buffer text = {0};
    const char *group = at + 1 < argc && argv[at + 1][0] != '-' ? argv[at + 1] : NULL;
    bool is_known = options_help(group, help_text_width(stdout), &text);
    fwrite(text.data, 1, text.length, is_known ? stdout : stderr);
    byte_buffer_finish(&text);
    return is_known ? EX_OK : EX_USAGE;
}

static void log_mistake(void *context, const char *line) {
    log_error("%s", line);
}

/* What the command line and the environment say is as it was; of secrets, only that they are there.
 */
static int reload_models(void *context, struct error *err) {
    struct serve *serve = context;
    struct model_list list;
    if (model_list_load(serve->argc, serve->argv, environ, &list, err) != 0)
        return -1;
    int status = model_loader_reload(&serve->loader, &list, serve->responses, serve->http, err);
    model_options_finish(&list);
    return status;
}

/* Several models, or what may become several, are the loader's. */
static void set_models(struct serve *serve) {
    struct model_list *list = &serve->list;
    serve->has_several = list->count > 1 || list->all.models_dir != NULL || list->all.models_hub;
    serve->options = serve->has_several ? &list->all : &list->models[0].options;
    if (serve->has_several) {
        serve->reload.reload_models = reload_models;
        serve->reload.models_context = serve;
    }
    serve->only.options = serve->options;
    serve->only.activity = &serve->guard.engine_activity;
    serve->only.http.created = time(NULL);
    serve->only.http.parts.wake_fd = -1;
}

int command_serve(int argc, char *const *argv) {
    struct serve serve = {.socket = {.fd = -1}, .admin = {.fd = -1}, .only = {.wake_fd = -1}};
    struct error err = {0};
    serve.started_ns = clock_now_ns();
    int help_at = client_find_help(argc, argv);
    if (help_at >= 0)
        return help(argc, argv, help_at);
    signals_block();
    log_file_find(&serve.reload.log);
    if (model_list_load(argc, argv, environ, &serve.list, &err) != 0) {
        options_list_mistakes(argc, argv, &err, log_mistake, NULL);
        return client_exit_status(&err);
    }
    serve.argc = argc;
    serve.argv = argv;
    set_models(&serve);
    options_hide_secrets(argc, argv);
    enum log_level log_level;
    CHECK(log_level_parse(serve.options->log_level, &log_level));
    log_set_level(log_level);
    options_log_flags(argc, argv);
    options_warn_of_variables(environ);
    int started = start(&serve, &err);
    if (started < 0)
        log_error("%s", err.message);
    int status = started < 0 ? client_exit_status(&err) : started == 0 ? EX_OK : run(&serve);
    finish(&serve);
    if (serve.transport != NULL && !serve.has_executor) { /* is not closed (transport.h) */
        fflush(NULL);
        _exit(status);
    }
    return status;
}
