/* The I/O loop. libmicrohttpd runs on its own epoll set without a separate thread; that set, the
 * engine's eventfd, the prep workers' eventfd, the signals and every client socket (for hang-ups)
 * sit in an outer set. Each turn first handles what concerns us, which only marks connections for
 * resuming, and then runs libmicrohttpd once: it walks all suspended connections per run, so one
 * run per turn is what it should cost. Connections are freed inside that run only, hence never
 * between an event and its handling. */
#include "server/http/http_server.h"

#include "config/base/check.h"
#include "config/base/clock.h"
#include "config/base/log.h"
#include "server/http/http_background.h"
#include "server/http/http_connection.h"
#include "server/http/http_control.h"
#include "server/http/http_deadlines.h"
#include "server/http/http_dispatch.h"
#include "server/http/http_handler.h"
#include "server/http/http_model_routes.h"
#include "server/http/http_reply.h"
#include "server/http/http_routes.h"
#include "server/process/service.h"
#include "server/process/signals.h"
#include "server/tls/tls_front.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAX_EVENTS 256
#define TICK_MS 250
#define STATUS_MS 5000
#define ADMIN_IDLE_S 10
#define SPARE_CONNECTIONS 64 /* above max_connections, so that they can be answered with 503 */
#define SPARE_FILES 64       /* files, eventfds, and a reserve for accept */
#define MIN_CONNECTIONS 4
#define FIRST_REQUEST_MS 1000 /* from accept or SIGTERM, for a connection's first request */
/* Less than STOP_GUARD_SPARE_MS (signals.h), which leaves some for what is closed then. */
#define STOP_CANCEL_MS 2500 /* for cancelled calls to end and their answers to go out */
#define STOP_CLOSE_MS 1000  /* for connections to close after that */

/* --- Start --- */

int http_server_fit_files(bool has_tls, int64_t *max_connections, struct error *err) {
    struct rlimit limit;
    int64_t files = has_tls ? 1 + TLS_CONNECTION_FILES : 1; /* of a connection */
    rlim_t needed = (rlim_t)((*max_connections + SPARE_CONNECTIONS) * files + SPARE_FILES);
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed)
        return 0;
    limit.rlim_cur = limit.rlim_max < needed ? limit.rlim_max : needed;
    setrlimit(RLIMIT_NOFILE, &limit);
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed)
        return 0;
    int64_t possible = ((int64_t)limit.rlim_cur - SPARE_FILES) / files - SPARE_CONNECTIONS;
    if (possible < MIN_CONNECTIONS)
        return error_set(err, ERROR_CONFIG,
                         "the system's limit of %lld open files is too low: %lld are needed at "
                         "least (ulimit -n, or LimitNOFILE= of a unit)",
                         (long long)limit.rlim_max,
                         (MIN_CONNECTIONS + SPARE_CONNECTIONS) * (long long)files + SPARE_FILES);
    log_warning("max-connections: %lld need more open files than this system's limit of %lld; "
                "using %lld",
                (long long)*max_connections, (long long)limit.rlim_max, (long long)possible);
    *max_connections = possible;
    return 0;
}

static struct MHD_Daemon *start_daemon(struct http_server *server) {
    const struct http_server_config *config = &server->config;
    bool listens = config->credentials == NULL;
    struct MHD_OptionItem socket[] = {
        {listens ? MHD_OPTION_LISTEN_SOCKET : MHD_OPTION_END, config->listen_fd, NULL},
        {MHD_OPTION_END, 0, NULL}};
    return MHD_start_daemon(
        (listens ? 0 : MHD_USE_NO_LISTEN_SOCKET) | MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME |
            MHD_USE_ERROR_LOG,
        0, NULL, NULL, http_handler_handle, server, MHD_OPTION_EXTERNAL_LOGGER, http_reply_log,
        NULL, MHD_OPTION_ARRAY, socket, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)(config->max_connections + SPARE_CONNECTIONS), MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)(HTTP_IDLE_TIMEOUT_MS / 1000 + 5), MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)HTTP_HEADER_MEMORY_BYTES, MHD_OPTION_STRICT_FOR_CLIENT, 1,
        MHD_OPTION_NOTIFY_CONNECTION, http_handler_notify, server, MHD_OPTION_NOTIFY_COMPLETED,
        http_connection_completed, server, MHD_OPTION_REFUSE_CALLBACK, http_reply_refused, server,
        MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1, MHD_OPTION_END);
}

/* For the administration's socket, which stays the caller's. */
static struct MHD_Daemon *start_admin_daemon(struct http_server *server) {
    return MHD_start_daemon(
        MHD_USE_EPOLL | MHD_USE_ERROR_LOG, 0, NULL, NULL, http_control_handle_admin, server,
        MHD_OPTION_EXTERNAL_LOGGER, http_reply_log, NULL, MHD_OPTION_LISTEN_SOCKET,
        server->config.admin_fd, MHD_OPTION_CONNECTION_LIMIT, (unsigned)HTTP_ADMIN_CONNECTIONS,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)ADMIN_IDLE_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)HTTP_ADMIN_HEADER_BYTES, MHD_OPTION_STRICT_FOR_CLIENT, 1,
        MHD_OPTION_NOTIFY_COMPLETED, http_control_complete_admin, NULL, MHD_OPTION_REFUSE_CALLBACK,
        http_reply_refused, server, MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1, MHD_OPTION_END);
}

/* The event's data is the address of a member that names the source, or a connection. */
static int watch(struct http_server *server, int fd, void *source) {
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = source};
    return fd < 0 ? -1 : epoll_ctl(server->epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

static int epoll_fd_of(struct MHD_Daemon *daemon) {
    return MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
}

static int start_tls(struct http_server *server, struct error *err) {
    const struct http_server_config *config = &server->config;
    if (!config->credentials)
        return 0;
    if (tls_front_create(config->listen_fd, config->max_connections + SPARE_CONNECTIONS,
                         config->credentials, &server->tls, err) != 0)
        return -1;
    if (watch(server, tls_front_fd(server->tls), &server->tls) != 0)
        return error_set(err, ERROR_IO, "cannot set up the I/O loop: %s", strerror(errno));
    return 0;
}

static int open_parts(struct http_server *server, struct error *err) {
    server->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    server->signal_fd = signals_open();
    if (server->epoll_fd < 0 || server->signal_fd < 0)
        return error_set(err, ERROR_IO, "cannot set up the I/O loop: %s", strerror(errno));
    server->out_of_memory = http_reply_create_out_of_memory();
    if (server->out_of_memory == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for the HTTP server");
    if (prep_workers_create(AUTH_MAX_TENANTS, &server->prep, err) != 0)
        return -1;
    server->daemon = start_daemon(server);
    if (!server->daemon)
        return error_set(err, ERROR_IO, "libmicrohttpd %s does not start", MHD_get_version());
    if (server->config.admin_fd >= 0) {
        server->admin = start_admin_daemon(server);
        if (!server->admin || watch(server, epoll_fd_of(server->admin), &server->admin) != 0)
            return error_set(err, ERROR_IO, "admin-socket: libmicrohttpd %s does not start",
                             MHD_get_version());
    }
    if (watch(server, epoll_fd_of(server->daemon), &server->daemon) != 0 ||
        watch(server, prep_workers_fd(server->prep), &server->prep) != 0 ||
        watch(server, server->signal_fd, &server->signal_fd) != 0)
        return error_set(err, ERROR_IO, "cannot set up the I/O loop: %s", strerror(errno));
    return start_tls(server, err);
}

static int watch_model(struct http_server *server, struct http_model *model) {
    models_endpoint_tokenizer_info(model->parts.context, &model->tokenizer_info);
    if (model->tokenizer_info.failed)
        return -1;
    return watch(server, model->parts.wake_fd, model);
}

static void unwatch_model(struct http_server *server, struct http_model *model) {
    epoll_ctl(server->epoll_fd, EPOLL_CTL_DEL, model->parts.wake_fd, NULL);
}

static int open_models(struct http_server *server, struct error *err) {
    struct http_models *models = &server->models;
    if (http_models_are_managed(models) && watch(server, models->loader.fd, &models->loader) != 0)
        return error_set(err, ERROR_IO, "cannot set up the I/O loop: %s", strerror(errno));
    for (int i = 0; i < models->count; i++) {
        struct http_model *model = models->items[i];
        if (!http_model_is_loaded(model))
            continue;
        model->state = HTTP_MODEL_AWAKE;
        model->awake_ms = model->used_ms = server->start_ms;
        model->num_loads = 1;
        if (watch_model(server, model) != 0)
            return error_set(err, ERROR_MEMORY, "no memory for what the API says of the model");
    }
    return 0;
}

void http_server_add_model(struct http_server *server, struct http_model *model) {
    server->models.items[server->models.count++] = model;
}

void http_server_remove_model(struct http_server *server, struct http_model *model) {
    http_models_remove(server, model);
}

void http_server_set_default_model(struct http_server *server, struct http_model *model) {
    struct http_models *models = &server->models;
    int at = 0;
    while (models->items[at] != model)
        at++;
    memmove(&models->items[1], &models->items[0], (size_t)at * sizeof(models->items[0]));
    models->items[0] = model;
}

int http_server_create(const struct http_server_config *config, const struct http_models *models,
                       struct api_keys *keys, struct http_server **out, struct error *err) {
    struct http_server *server = calloc(1, sizeof(*server));
    if (!server)
        return error_set(err, ERROR_MEMORY, "no memory for the HTTP server");
    server->config = *config;
    server->models = *models;
    server->models.front = (struct http_models_front){.parse = http_dispatch_parse,
                                                      .refuse = http_dispatch_refuse,
                                                      .watch = watch_model,
                                                      .unwatch = unwatch_model,
                                                      .changed = http_model_routes_announce};
    server->keys = keys;
    server->epoll_fd = server->signal_fd = -1;
    server->start_ms = clock_now_ms();
    server->watchdog_ms = service_watchdog_ms() / 3;
    server->memory.budget_bytes = http_memory_budget_bytes(config->max_body_bytes);
    if (open_parts(server, err) != 0 || open_models(server, err) != 0) {
        http_server_destroy(server);
        return -1;
    }
    *out = server;
    return 0;
}

/* --- Stop: it may be announced some time before; then what is in flight gets a grace time, then a
 * cancellation, then a closed socket --- */

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

/* Nobody connects any more; those who have are here. A socket of the service manager's is left to
 * the next process with all who wait on it. */
static void stop_listening(struct http_server *server) {
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

/* What comes from now on is answered with 503. */
static void refuse_work(struct http_server *server) {
    server->refuses_work = true;
    http_models_end(server);
    for (int i = 0; i < server->models.count; i++)
        if (http_model_is_loaded(server->models.items[i]))
            engine_stop_accepting(server->models.items[i]->parts.engine);
}

static void extend_timeout(int64_t ms) {
    service_extend_timeout((int)((ms + STOP_CANCEL_MS + STOP_CLOSE_MS) / 1000) + 5);
}

/* Says to load balancers that they should send requests elsewhere, and puts the stop off until they
 * have noticed (--drain-delay): /health is 503, and everything is served as before. */
static void announce_stop(struct http_server *server) {
    const struct http_server_config *config = &server->config;
    server->stop_due_ms = clock_now_ms() + config->drain_delay_ms;
    config->stop_begins(config->stop_context, config->drain_delay_ms + config->shutdown_timeout_ms);
    service_stopping();
    extend_timeout(config->drain_delay_ms + config->shutdown_timeout_ms);
    log_info("draining: requests are accepted for another %lld ms",
             (long long)config->drain_delay_ms);
}

/* Begins with the grace time. Whoever connects meanwhile gets a 503, but on a socket of the service
 * manager's, where the next process answers: there each connection that is here already has one
 * more answer, so that a restart refuses nobody. */
static void begin_stop(struct http_server *server, int64_t grace_ms) {
    server->is_stopping = true;
    server->stop_ms = clock_now_ms();
    server->stop_deadline_ms = server->stop_ms + grace_ms;
    if (server->config.is_socket_passed)
        stop_listening(server);
    if (!server->config.is_socket_passed || server->has_failed)
        refuse_work(server);
    server->config.stop_begins(server->config.stop_context, grace_ms);
    service_stopping();
    extend_timeout(grace_ms);
    log_info("stopping: %lld requests in flight, at most %lld ms for them",
             (long long)server->num_pending, (long long)grace_ms);
}

/* Each signal takes the stop a step further. */
static void stop(struct http_server *server) {
    if (server->is_stopping) {
        log_info("another signal: cancelling requests in flight");
        server->stop_deadline_ms = clock_now_ms();
        server->config.stop_begins(server->config.stop_context, 0);
    } else if (server->stop_due_ms == 0 && server->config.drain_delay_ms > 0) {
        announce_stop(server);
    } else {
        begin_stop(server, server->config.shutdown_timeout_ms);
    }
}

/* --- Turns of the loop --- */

static void take_signals(struct http_server *server) {
    struct signalfd_siginfo info;
    while (read(server->signal_fd, &info, sizeof(info)) == sizeof(info)) {
        int number = (int)info.ssi_signo;
        enum signal_action action = signals_action(number);
        if (action == SIGNAL_IGNORE) {
            log_info("signal %d (%s) is ignored; SIGTERM stops", number, strsignal(number));
        } else if (action == SIGNAL_RELOAD) {
            if (!server->is_stopping)
                server->config.reload(server->config.reload_context);
        } else {
            stop(server);
        }
    }
}

static void take_prepared(struct http_server *server) {
    struct prep_job *job = prep_workers_take_done(server->prep);
    while (job) {
        struct prep_job *next = job->next;
        http_dispatch_prepared(job);
        job = next;
    }
}

static void take_ready_requests(struct http_server *server, struct http_model *model) {
    uint64_t count;
    if (!http_model_is_loaded(model)) /* closed in this turn */
        return;
    if (read(model->parts.wake_fd, &count, sizeof(count)) < 0)
        CHECK(errno == EAGAIN);
    const uint64_t again = 1;
    http_control_update(server);
    if (http_dispatch_take_ready(model->parts.engine))
        CHECK(write(model->parts.wake_fd, &again, sizeof(again)) == sizeof(again));
    if (model == server->models.moving)
        http_models_advance(server);
}

/* Returns the model that the source of an event is, or NULL. */
static struct http_model *model_of(const struct http_server *server, const void *source) {
    for (int i = 0; i < server->models.count; i++)
        if (source == server->models.items[i])
            return server->models.items[i];
    return NULL;
}

static void take_clients(struct http_server *server) {
    struct tls_client client;
    while (tls_front_take(server->tls, &client))
        MHD_add_connection(server->daemon, client.fd, &client.address.value.any,
                           client.address.length);
}

static void handle_event(struct http_server *server, void *source, uint32_t events) {
    struct http_model *model = model_of(server, source);
    if (source == &server->daemon || source == &server->admin)
        return; /* every turn runs the daemons */
    if (source == &server->tls)
        take_clients(server);
    else if (model != NULL)
        take_ready_requests(server, model);
    else if (source == &server->models.loader)
        http_models_advance(server);
    else if (source == &server->prep)
        take_prepared(server);
    else if (source == &server->signal_fd)
        take_signals(server);
    else
        http_connection_hang_up(source, (events & (EPOLLHUP | EPOLLERR)) != 0);
}

/* Proxies and clients close a stream that is silent for long, and a client that is gone is noticed
 * by what it is sent: so something without meaning is. */
static void keep_alive(struct connection *connection, int64_t now_ms) {
    struct exchange *exchange = &connection->exchange;
    int64_t interval_ms = connection->server->config.ping_interval_ms;
    bool is_probe = http_connection_probe(connection, now_ms);
    bool is_due = interval_ms > 0 && now_ms + TICK_MS - exchange->output_ms > interval_ms;
    bool is_silent =
        exchange->state == EXCHANGE_ANSWERED && connection->is_suspended &&
        (exchange->call != NULL || exchange->followed != NULL || exchange->follows_models);
    if (!is_silent || (!is_probe && !is_due))
        return;
    byte_buffer_append_text(&exchange->out, http_routes_dialect_of(exchange)->keep_alive);
    exchange->output_ms = now_ms;
    http_connection_wake(connection);
}

static void report_status(struct http_server *server, const struct engine_stats *stats,
                          int64_t now_ms) {
    if (now_ms < server->status_ms)
        return;
    server->status_ms = now_ms + STATUS_MS;
    service_status("%srunning %d, waiting %d, blocks %.0f %%",
                   server->is_stopping                          ? "stopping: "
                   : stats->rest != ENGINE_AWAKE                ? "asleep: "
                   : stats->is_restarting                       ? "restarting its ranks: "
                   : server->is_draining || server->stop_due_ms ? "draining: "
                                                                : "",
                   stats->num_running, stats->num_waiting,
                   100.0 * stats->num_used_blocks / (stats->num_blocks ? stats->num_blocks : 1));
}

static void log_traffic(struct http_model *model, bool is_alone, const struct engine_stats *stats,
                        int64_t now_ms) {
    char line[TRAFFIC_LOG_LINE_BYTES];
    if (!traffic_log_update(&model->traffic, stats, now_ms, line))
        return;
    if (is_alone)
        log_info("%s", line);
    else
        log_info("%s; %s", line, model->names[0]);
}

static void feed_watchdog(struct http_server *server, int64_t now_ms) {
    if (server->watchdog_ms == 0 || now_ms < server->watchdog_due_ms)
        return;
    for (int i = 0; i < server->models.count; i++)
        if (http_model_is_loaded(server->models.items[i]) &&
            !engine_monitor_is_alive(&server->models.items[i]->monitor, now_ms))
            return;
    server->watchdog_due_ms = now_ms + server->watchdog_ms;
    service_watchdog();
}

/* Ends the process where nothing outside does it, with a core for whoever wants to know why. */
static void abort_if_stuck(const struct http_server *server, const struct http_model *model,
                           int64_t now_ms) {
    int64_t limit_ms = server->config.watchdog_ms;
    if (limit_ms == 0 || engine_monitor_stuck_ms(&model->monitor, now_ms) <= limit_ms)
        return;
    log_error("watchdog: the engine has had work but finished no step for %lld ms; aborting",
              (long long)limit_ms);
    abort();
}

/* A device that failed ends the server, unless its model is one of several. */
static void take_failure(struct http_server *server, struct http_model *model) {
    const char *message = engine_failure(model->parts.engine).message;
    if (http_models_are_managed(&server->models)) {
        if (!model->has_failed)
            log_error("model %s: the device failed: %s; it is loaded anew when it is asked for",
                      model->names[0], message);
        model->has_failed = true;
        return;
    }
    server->has_failed = true;
    log_error("the device failed: %s; answering requests in flight and stopping", message);
    if (!server->is_stopping)
        begin_stop(server, STOP_CANCEL_MS);
}

static void add_stats(struct engine_stats *sum, const struct engine_stats *stats) {
    sum->num_running += stats->num_running;
    sum->num_waiting += stats->num_waiting;
    sum->num_used_blocks += stats->num_used_blocks;
    sum->num_blocks += stats->num_blocks;
    sum->is_restarting |= stats->is_restarting;
    if (stats->rest == ENGINE_AWAKE)
        sum->rest = ENGINE_AWAKE;
}

/* Sums up the stats that the service manager is told. */
static struct engine_stats tick_models(struct http_server *server, int64_t now_ms) {
    struct http_models *models = &server->models;
    struct engine_stats sum = {.rest = ENGINE_ASLEEP}, stats;
    for (int i = 0; i < models->count; i++) {
        struct http_model *model = models->items[i];
        if (!http_model_is_loaded(model))
            continue;
        engine_get_stats(model->parts.engine, &stats);
        engine_monitor_update(&model->monitor, &stats, now_ms);
        log_traffic(model, models->count == 1, &stats, now_ms);
        abort_if_stuck(server, model, now_ms);
        add_stats(&sum, &stats);
        if (!server->has_failed && engine_has_failed(model->parts.engine))
            take_failure(server, model);
    }
    return sum;
}

static void tick(struct http_server *server) {
    int64_t now_ms = clock_now_ms();
    char line[TRAFFIC_LOG_LINE_BYTES];
    if (now_ms < server->tick_ms)
        return;
    server->tick_ms = now_ms + TICK_MS;
    const struct engine_stats stats = tick_models(server, now_ms);
    http_models_advance(server);
    if (server->models.moving != NULL && server->models.moving->state == HTTP_MODEL_LOADING)
        http_model_routes_announce(server, server->models.moving);
    report_status(server, &stats, now_ms);
    while (traffic_log_withheld(&server->refusals, now_ms, line))
        log_info("%s", line);
    feed_watchdog(server, now_ms);
    double pressure = http_deadlines_pressure(server);
    for (struct connection *c = server->connections; c; c = c->next) {
        http_deadlines_check(c, pressure, now_ms);
        keep_alive(c, now_ms);
    }
    http_control_update(server);
    if (server->stop_due_ms != 0 && now_ms >= server->stop_due_ms && !server->is_stopping)
        begin_stop(server, server->config.shutdown_timeout_ms);
}

static int64_t limit_wait(struct MHD_Daemon *daemon, int64_t wait) {
    MHD_UNSIGNED_LONG_LONG library_ms;
    bool is_sooner = MHD_get_timeout(daemon, &library_ms) == MHD_YES &&
                     library_ms < (MHD_UNSIGNED_LONG_LONG)wait;
    return is_sooner ? (int64_t)library_ms : wait;
}

static int wait_ms(const struct http_server *server) {
    int64_t wait = server->tick_ms - clock_now_ms();
    if (wait < 0 || server->num_deferred > 0)
        wait = 0;
    wait = limit_wait(server->daemon, wait);
    return (int)(server->admin ? limit_wait(server->admin, wait) : wait);
}

static int turn(struct http_server *server) {
    struct epoll_event events[MAX_EVENTS];
    int count = epoll_wait(server->epoll_fd, events, MAX_EVENTS, wait_ms(server));
    if (count < 0 && errno != EINTR) {
        log_error("epoll_wait: %s", strerror(errno));
        return -1;
    }
    for (int i = 0; i < count; i++)
        handle_event(server, events[i].data.ptr, events[i].events);
    tick(server);
    http_connection_resume_deferred(server);
    if (MHD_run(server->daemon) == MHD_NO || (server->admin && MHD_run(server->admin) == MHD_NO)) {
        log_error("libmicrohttpd stopped running");
        return -1;
    }
    if (server->models.is_due)
        http_models_advance(server);
    return 0;
}

/* --- The end --- */

/* Gives all connections up. */
static void close_all(struct http_server *server) {
    for (struct connection *c = server->connections; c; c = c->next)
        http_connection_give_up(c);
}

/* Returns whether a request is on its way here: on a connection from which none has come yet, which
 * is given a moment, or of which a part is here. */
static bool is_request_expected(const struct http_server *server) {
    int64_t now_ms = clock_now_ms();
    for (const struct connection *c = server->connections; c; c = c->next) {
        int64_t since_ms = c->since_ms > server->stop_ms ? c->since_ms : server->stop_ms;
        if (c->exchange.state == EXCHANGE_READING || c->exchange.state == EXCHANGE_DRAINING ||
            (c->is_first && !c->is_closed && now_ms - since_ms < FIRST_REQUEST_MS))
            return true;
    }
    return false;
}

/* Turns until nothing is counted by *remaining or the time is up. */
static int turn_until_none(struct http_server *server, const int64_t *remaining,
                           const int64_t *deadline_ms) {
    while (*remaining > 0 && clock_now_ms() < *deadline_ms) {
        if (turn(server) != 0)
            return -1;
    }
    return 0;
}

/* Gives what is in flight the grace time, then a cancellation, then a closed socket, on which
 * whoever came before that has an answer. */
static int wind_down(struct http_server *server) {
    while ((server->num_pending > 0 || server->num_awaiting > 0 ||
            (!server->refuses_work && is_request_expected(server))) &&
           clock_now_ms() < server->stop_deadline_ms) {
        if (turn(server) != 0)
            return -1;
    }
    int64_t deadline_ms = clock_now_ms() + STOP_CANCEL_MS;
    refuse_work(server);
    for (int i = 0; i < server->models.count; i++)
        if (http_model_is_loaded(server->models.items[i]))
            engine_stop_restarting(server->models.items[i]->parts.engine);
    http_connection_cancel_all(server);
    if (turn_until_none(server, &server->num_pending, &deadline_ms) != 0 ||
        turn_until_none(server, &server->num_awaiting, &deadline_ms) != 0)
        return -1;
    deadline_ms = clock_now_ms() + STOP_CLOSE_MS;
    stop_listening(server);
    while (is_request_expected(server) && clock_now_ms() < deadline_ms) {
        if (turn(server) != 0)
            return -1;
    }
    close_all(server);
    return turn_until_none(server, &server->stats.connections, &deadline_ms);
}

enum http_stop http_server_run(struct http_server *server) {
    while (!server->is_stopping) {
        if (turn(server) != 0)
            return HTTP_LOOP_FAILED;
    }
    if (wind_down(server) != 0)
        return HTTP_LOOP_FAILED;
    return server->has_failed ? HTTP_ENGINE_FAILED : HTTP_STOPPED;
}

void http_server_set_credentials(struct http_server *server, struct tls_credentials *credentials) {
    tls_front_set_credentials(server->tls, credentials);
}

void http_server_destroy(struct http_server *server) {
    if (!server)
        return;
    /* libmicrohttpd aborts the process when it is stopped with suspended connections, so everything
     * is resumed and closed before. */
    if (server->daemon) {
        close_all(server);
        for (int i = 0; i < 3 && server->connections; i++)
            MHD_run(server->daemon);
        stop_listening(server);
        MHD_stop_daemon(server->daemon);
    }
    http_background_drop_all(server);
    tls_front_destroy(server->tls);
    if (server->admin) {
        MHD_quiesce_daemon(server->admin); /* the socket stays the caller's */
        MHD_stop_daemon(server->admin);
    }
    prep_workers_destroy(server->prep, http_dispatch_drop);
    if (server->signal_fd >= 0)
        close(server->signal_fd);
    if (server->epoll_fd >= 0)
        close(server->epoll_fd);
    byte_buffer_finish(&server->openapi);
    for (int i = 0; i < server->models.count; i++)
        byte_buffer_finish(&server->models.items[i]->tokenizer_info);
    if (server->out_of_memory != NULL)
        MHD_destroy_response(server->out_of_memory);
    free(server);
}
