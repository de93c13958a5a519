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

/* Not for a rank that mpirun has started in addition to the first: it ends with that. */
static int start_guard(struct serve *serve, struct error *err) {
    return stop_guard_start(&serve->guard, err);
}

/* The steps of starting, in order. */
static int (*const steps[])(struct serve *serve, struct error *err) = {
    command_serve_engine_open_ranks,
    start_guard,
    command_serve_http_read_origins,
    command_serve_http_open_logs,
    command_serve_http_open_keys,
    command_serve_http_open_tls,
    command_serve_http_open_responses,
    command_serve_http_fit_files,
    command_serve_http_open_socket,
    command_serve_http_open_admin_socket,
    command_serve_model_read_options,
    command_serve_engine_open_kv_events,
    command_serve_engine_check_record,
    command_serve_model_find,
    command_serve_model_open,
    command_serve_engine_plan,
    command_serve_model_open_tokenizer,
    command_serve_model_open_scores,
    command_serve_model_open_chat,
    command_serve_model_start_verify,
    command_serve_model_start_vocabulary,
    command_serve_engine_open_executor,
    command_serve_http_listen,
    command_serve_model_await_vocabulary,
    command_serve_model_await_verify,
    command_serve_engine_start,
    command_serve_engine_test,
    command_serve_engine_load_adapters,
    command_serve_http_start,
};

/* 1 when everything runs, 0 when a signal came first, -1 with err. */
static int start(struct serve *serve, struct error *err) {
    service_extend_timeout(COMMAND_SERVE_LOAD_TIMEOUT_S);
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        stop_guard_note(&serve->guard, steps[i] == command_serve_engine_open_executor
                                           ? "loads the weights"
                                       : steps[i] == command_serve_engine_test ? "tests the engine"
                                                                               : "starts");
        if (steps[i](serve, err) != 0) {
            if (err->code != ERROR_INTERRUPTED)
                return -1;
            log_info("%s", err->message);
            return 0;
        }
        if (steps[i] == command_serve_engine_open_executor)
            command_serve_http_set_context(serve);
        if (signals_take_stop()) {
            stop_guard_arm(&serve->guard, 0);
            return 0;
        }
    }
    command_serve_log_start(serve);
    return 1;
}

static int run(struct serve *serve) {
    const struct options *options = &serve->options;
    stop_guard_note(&serve->guard, "answers clients");
    stop_guard_serve(&serve->guard, (options->drain_delay + options->shutdown_timeout) * 1000);
    service_ready();
    log_info("listening on %s, model %s, ready after %.0f ms", serve->socket.name,
             serve->context.model_names[0], ms_since(serve->started_ns));
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

static bool device_hangs(const struct serve *serve) {
    return serve->executor != NULL && executor_has_hung(serve->executor);
}

static void finish(struct serve *serve) {
    if (device_hangs(serve))
        leave(serve);
    stop_guard_note(&serve->guard, "closes the front end");
    http_server_destroy(serve->http);
    close_logs(serve);
    stop_guard_note(&serve->guard, "ends the engine");
    engine_destroy(serve->engine);
    adapter_loader_finish(&serve->adapters);
    if (device_hangs(serve)) /* found by the engine while it ended */
        leave(serve);
    stop_guard_note(&serve->guard, "closes the rest");
    kv_event_publisher_close(serve->kv_events);
    recorder_destroy(serve->recorder);
    record_file_close(serve->record_file);
    if (serve->drafter)
        serve->drafter->ops->destroy(serve->drafter);
    stop_guard_note(&serve->guard, "closes the ranks");
    if (serve->executor)
        serve->executor->ops->destroy(serve->executor);
    if (serve->executor && serve->transport) /* else the other ranks do not come to it */
        serve->transport->ops->destroy(serve->transport);
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
    command_verify_finish(&serve->draft_verify);
    chat_model_destroy(serve->chat);
    score_model_destroy(serve->scores);
    free(serve->given_template);
    tokenizer_close(serve->tokenizer);
    draft_model_close(&serve->draft);
    model_close(serve->model);
    options_finish(&serve->options);
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

int command_serve(int argc, char *const *argv) {
    struct serve serve = {.wake_fd = -1, .socket = {.fd = -1}, .admin = {.fd = -1}};
    struct error err = {0};
    serve.started_ns = clock_now_ns();
    int help_at = client_find_help(argc, argv);
    if (help_at >= 0)
        return help(argc, argv, help_at);
    signals_block();
    log_file_find(&serve.reload.log);
    if (options_load(argc, argv, environ, &serve.options, &err) != 0) {
        options_list_mistakes(argc, argv, &err, log_mistake, NULL);
        return client_exit_status(&err);
    }
    options_hide_secrets(argc, argv);
    enum log_level log_level;
    CHECK(log_level_parse(serve.options.log_level, &log_level));
    log_set_level(log_level);
    options_log_flags(argc, argv);
    options_warn_of_variables(environ);
    int started = start(&serve, &err);
    if (started < 0)
        log_error("%s", err.message);
    int status = started < 0 ? client_exit_status(&err) : started == 0 ? EX_OK : run(&serve);
    finish(&serve);
    if (serve.transport != NULL && serve.executor == NULL) { /* is not closed (transport.h) */
        fflush(NULL);
        _exit(status);
    }
    return status;
}
