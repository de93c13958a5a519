/* The HTTP front end: one I/O thread (the caller of http_server_run) owns every connection.
 *
 * Order of life: http_server_create -> http_server_run, which returns when the server has stopped
 * -> http_server_destroy. signals_block must have been called before the first thread was created;
 * the loop takes the signals through a signalfd. */
#ifndef QUIRE_SERVER_HTTP_HTTP_SERVER_H
#define QUIRE_SERVER_HTTP_HTTP_SERVER_H

#include "config/base/error.h"
#include "server/api/call/api_call.h"
#include "server/http/http_checks.h"
#include "server/http/http_models.h"
#include "server/keys/api_keys.h"
#include "server/telemetry/access_log.h"
#include "server/telemetry/trace.h"

#include <stddef.h>
#include <stdint.h>

struct http_server;
struct tls_credentials;

struct http_server_config {
    int listen_fd;         /* listening, non-blocking; owned by the caller */
    bool is_socket_passed; /* by the service manager, which keeps it open over a restart */
    int admin_fd;          /* the same for --admin-socket; -1: none */
    struct tls_credentials *credentials; /* for TLS; NULL: plain HTTP */
    int64_t max_connections;             /* beyond: 503 and close */
    int64_t max_api_calls;               /* API calls in flight, queued or running; beyond: 429 */
    int64_t max_connections_per_ip;      /* 0: as many as all others leave */
    size_t max_body_bytes;               /* beyond: 413 */
    int64_t queue_timeout_ms;            /* of a request that waits to run; 0: none */
    int64_t ping_interval_ms;            /* maximum silence of a stream; 0 or less: unlimited */
    int64_t drain_delay_ms;      /* after the first signal, before the server begins to stop */
    int64_t shutdown_timeout_ms; /* after that, for what is in flight */
    /* A stop has begun, or was shortened: clients have clients_ms left. I/O thread. */
    void (*stop_begins)(void *context, int64_t clients_ms);
    void *stop_context;
    bool allows_admin;    /* routes for administrators are enabled */
    bool trusts_priority; /* all requests count to one share, where priority orders them */
    const char *metrics_prefix;
    size_t planned_bytes;  /* for /metrics: the maximum host memory of everything */
    bool shows_key_names;  /* in /metrics, to every key; otherwise only to administrators */
    int64_t watchdog_ms;   /* without a step of an engine that has work: abort; 0: never */
    const char *root_path; /* prefix of all paths, if a proxy does not remove it; or NULL */
    const struct http_origin_rules *origins;
    void (*reload)(void *context); /* on SIGHUP, in the I/O thread, between two requests */
    void *reload_context;
    struct access_log *access_log; /* NULL: none */
    struct trace_exporter *traces; /* NULL: none */
    bool logs_prompts;
    struct response_store *responses; /* NULL: none are kept */
};

enum http_stop {
    HTTP_STOPPED,       /* by a signal; everything in flight was answered or cancelled */
    HTTP_ENGINE_FAILED, /* the device failed; everything in flight was answered */
    HTTP_LOOP_FAILED,   /* the operating system refused to continue */
};

/* Raises the limit of open files to what the connections need, or lowers their number and warns.
 * ERROR_CONFIG when not even a few are possible. */
int http_server_fit_files(bool has_tls, int64_t *max_connections, struct error *err);

/* All pointers outlive the server, whose max_connections the limit of open files allows. */
int http_server_create(const struct http_server_config *config, const struct http_models *models,
                       struct api_keys *keys, struct http_server **out, struct error *err);
/* Serves a further model, or one no more (http_models.h), or has requests that name none go to it.
 */
void http_server_add_model(struct http_server *server, struct http_model *model);
void http_server_remove_model(struct http_server *server, struct http_model *model);
void http_server_set_default_model(struct http_server *server, struct http_model *model);
enum http_stop http_server_run(struct http_server *server);
/* Sets the credentials of new connections, if the server uses TLS. Takes its own reference. */
void http_server_set_credentials(struct http_server *server, struct tls_credentials *credentials);
/* Called before run, or after it returned. Accepts NULL. */
void http_server_destroy(struct http_server *server);

#endif
