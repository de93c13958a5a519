/* State shared by the http_*.c files; nobody else includes this. Everything here belongs to the I/O
 * thread, but for a prep_task while a worker has it.
 *
 * A TCP connection carries exchanges (request and answer) one after the other. An exchange that
 * needs tokens is suspended inside libmicrohttpd while it waits:
 *
 *   READING -> WAITING (prep worker, then engine) -> READY_* -> ANSWERED
 *      \-----> READY_* directly, for answers that need no waiting
 */
#ifndef QUIRE_SERVER_HTTP_STATE_H
#define QUIRE_SERVER_HTTP_STATE_H

#include "server/api/endpoints.h"
#include "server/engine_monitor.h"
#include "server/http/http_checks.h"
#include "server/http/http_memory.h"
#include "server/http/http_origin.h"
#include "server/http/http_server.h"
#include "server/metrics.h"
#include "server/http/prep_workers.h"
#include "server/queue_estimate.h"

#include <microhttpd.h>
#include <stdatomic.h>

#define HEADER_POOL_BYTES (32 * 1024)   /* per connection; longer headers: 431, longer URL: 414 */
#define OUTPUT_LIMIT_BYTES (64 * 1024)  /* unread output of a stream before we stop reading it */
#define OUTPUT_RESUME_BYTES (16 * 1024) /* ... and at which we read on */
#define MAX_ANSWER_BYTES (64 * 1024 * 1024) /* of one answer; beyond: 400 */
#define SHORT_BODY_BYTES (64 * 1024)        /* read and tokenised in some milliseconds */
#define DRAIN_BYTES (64 * 1024)             /* bodies of refused requests up to this are read */
#define HTTP_IDLE_TIMEOUT_MS 75000          /* end of an exchange to the next complete header */
#define KEEP_ALIVE_MS 15000                 /* silence of a stream before a comment is sent */

struct connection;

enum exchange_state {
    EXCHANGE_NONE,         /* between exchanges */
    EXCHANGE_READING,      /* the body comes in */
    EXCHANGE_DRAINING,     /* the body comes in and is dropped; `error` says what to answer */
    EXCHANGE_WAITING,      /* suspended: with a prep worker, or no output yet */
    EXCHANGE_READY_ERROR,  /* `error` is the answer */
    EXCHANGE_READY_BODY,   /* `out` is the answer */
    EXCHANGE_READY_STREAM, /* the first frames are in `out` */
    EXCHANGE_ANSWERED,     /* a response is queued; for a stream, more comes through `out` */
};

/* What a worker does for an exchange. `connection` is NULL once that is gone. */
struct prep_task {
    struct prep_job job;
    struct connection *connection; /* the worker never looks at it */
    atomic_bool is_abandoned;      /* nobody wants the result: not begun any more */
    const struct route *route;
    const struct api_context *context;
    struct byte_buffer body;
    struct http_memory *memory;
    struct http_owner *owner; /* used */
    size_t held_bytes;        /* of the memory, for the body */
    /* results */
    bool failed;
    struct api_error error;
    struct byte_buffer out;
    struct byte_buffer ignored; /* a transform's; with its NUL, or empty */
    struct api_call *call;
};

struct exchange {
    enum exchange_state state;
    const struct route *route;
    const char *argument; /* the path behind a prefix route; valid during the exchange */
    char request_id[REQUEST_ID_BYTES];
    struct http_origin_request origin;
    int32_t tenant; /* auth_tenant; 0 on open routes */
    struct api_error error;
    const char *allow;                 /* methods for a 405 or OPTIONS */
    int status;                        /* of an answer that is no error; 0: 200 */
    const struct header_field *fields; /* of this answer alone; NULL: none */
    bool must_close;
    bool is_pending; /* counted in http_server.num_pending and, if a call, in num_calls */
    int64_t start_ms;
    uint64_t body_length; /* as announced; UINT64_MAX: it comes in chunks */
    int64_t received_ms;  /* last time a piece of the body came */
    uint64_t body_received;
    struct http_owner *owner; /* used; NULL: refused before it was known */
    size_t held_bytes;        /* of http_server.memory, for body, call and `out` */
    int64_t counted_ms;       /* last time the call's and the output's were counted */
    struct byte_buffer body;
    struct prep_task *task; /* while a worker has it */
    struct api_call *call;
    bool is_unread;             /* the call has events left in the engine: output was full */
    struct byte_buffer ignored; /* where there is no call: names for X-Ignored-Params */
    struct byte_buffer out;
    size_t out_taken;     /* bytes at the front of `out` that the response's reader has had */
    uint64_t taken_bytes; /* since the response was queued */
    bool is_whole;        /* an answer of known length, taken from `out` */
    int64_t answer_ms;    /* when its response was queued */
    int64_t output_ms;    /* last time `out` grew */
    int64_t drain_ms;     /* last time `out` shrank or the client took bytes of it */
    int unacked_bytes;    /* in the kernel when last looked at */
};

/* Output that waits to be taken. */
static inline size_t exchange_pending(const struct exchange *exchange) {
    return exchange->out.length - exchange->out_taken;
}

struct connection {
    struct http_server *server;
    struct connection *prev, *next; /* in server->connections */
    struct MHD_Connection *mhd;
    int fd;
    struct http_owner *address; /* used, and counted in its num_connections */
    int64_t since_ms;           /* accept, or the end of the last exchange */
    bool is_first;              /* no exchange has begun yet */
    bool is_closed;             /* the client hung up, or we gave up on it */
    bool is_shut;               /* we gave up on it: the socket is shut down */
    int64_t closed_ms;          /* when the client hung up */
    bool is_suspended;
    struct exchange exchange;
};

struct http_server {
    struct http_server_config config;
    struct engine *engine;
    const struct api_context *context;
    const struct auth *auth;
    struct prep_workers *prep;
    struct MHD_Daemon *daemon;
    int epoll_fd, signal_fd;
    struct connection *connections;
    int64_t
        num_pending;   /* exchanges handed to a worker and not completed; stopping waits for them */
    int64_t num_calls; /* of them: calls */
    int64_t num_closed; /* of stats.connections: is_closed, and soon gone */
    struct http_memory memory;
    struct queue_estimate queue;
    struct MHD_Response *out_of_memory; /* the answer when there is none for an answer */
    struct byte_buffer openapi;         /* the answer to /openapi.json */
    struct http_stats stats;
    struct engine_monitor monitor;
    int64_t tick_ms, status_ms, watchdog_ms, watchdog_due_ms;
    bool is_stopping, has_failed;
    int64_t stop_deadline_ms;
};

static inline bool http_has_too_many_connections(const struct http_server *server) {
    return server->stats.connections - server->num_closed > server->config.max_connections;
}

int64_t http_now_ms(void);

/* http_connection.c */
void connection_notify(void *context, struct MHD_Connection *mhd, void **socket_context,
                       enum MHD_ConnectionNotificationCode code);
void connection_completed(void *context, struct MHD_Connection *mhd, void **request_context,
                          enum MHD_RequestTerminationCode code);
/* From a handler or content reader only. */
void connection_suspend(struct connection *connection);
/* Lets a suspended connection go on with the next MHD_run. */
void connection_wake(struct connection *connection);
/* The client is gone: cancels its requests at once, closes the socket. */
void connection_hang_up(struct connection *connection);
/* The same, whatever the client does. libmicrohttpd finds the socket shut down with its next run.
 */
void connection_give_up(struct connection *connection);
/* Frees the body and the output, and gives their memory back. */
void connection_release_memory(struct connection *connection);

/* http_deadlines.c */
/* How short of memory or connections the server is: 0 to 1. */
double http_pressure(const struct http_server *server);
/* Gives the connection up if its client takes too long for something. */
void connection_check_deadlines(struct connection *connection, double pressure, int64_t now_ms);
/* Counts bytes more for the exchange, in place of transfers of greedier owners that stand still;
 * false: there are none such. */
bool connection_take_memory(struct connection *connection, size_t bytes);
/* Gives up the connection that stood still longest, of the address that has most. */
void connection_make_room(struct http_server *server, const struct connection *newcomer);

/* http_handler.c: the access handler. */
enum MHD_Result handler_handle(void *context, struct MHD_Connection *mhd, const char *url,
                               const char *method, const char *version, const char *upload_data,
                               size_t *upload_size, void **request_context);

/* http_reply.c: queue the answer; for an exchange in READY_*. */
enum MHD_Result reply_error(struct connection *connection);
enum MHD_Result reply_body(struct connection *connection, const char *content_type);
enum MHD_Result reply_stream(struct connection *connection);
enum MHD_Result reply_options(struct connection *connection);
/* In the middle of a body, whose rest is not read. */
enum MHD_Result reply_refuse_body(struct connection *connection);
/* Writes the error (408) straight to the socket, from outside the handler; the connection is then
 * given up. */
void reply_error_now(struct connection *connection);
/* The response to a request that libmicrohttpd refuses by itself. */
struct MHD_Response *reply_to_refused(void *context, struct MHD_Connection *mhd, unsigned status);
/* The answer for when there is no memory to make one; NULL: none for this either. */
struct MHD_Response *reply_create_out_of_memory(void);

/* http_routes.c */
struct route {
    const char *path;
    bool is_prefix;      /* matches what begins with path and goes on */
    bool is_open;        /* needs no API key */
    const char *methods; /* "GET, HEAD": separated by ", ", as Allow has them */
    /* Exactly one of the three is set. Fills exchange.out; returns -1 with exchange.error. */
    int (*answer)(struct connection *connection);
    /* On a worker, from body to body; `ignored` takes the names for X-Ignored-Params. */
    api_transform *transform;
    api_call_parse *parse;    /* on a worker; makes engine requests: subject to admission */
    const char *content_type; /* NULL: the answer's own fields say it */
};

/* All of them; static. */
const struct route *route_list(size_t *out_count);
/* NULL when there is none. Paths under /v1 are found without it too. *out_argument: the path behind
 * a prefix. */
const struct route *route_find(const char *path, const char **out_argument);
bool route_has_method(const struct route *route, const char *method);

/* http_index.c: GET /, the chat page for browsers and a list of the routes for everyone else. */
int index_answer(struct connection *connection);

/* http_dispatch.c */
/* Hands the body to a worker; the exchange is then WAITING. -1: no memory. */
int http_dispatch_start(struct connection *connection);
/* A job came back from the workers. */
void http_dispatch_prepared(struct prep_task *task);
/* The engine has news; true: more than is taken in one turn. */
bool http_dispatch_take_ready(struct http_server *server);
/* Output was taken: goes on reading a call whose output was full. */
void http_dispatch_output_drained(struct connection *connection);
/* Cancels what is unfinished and forgets the call. */
void http_dispatch_abandon(struct connection *connection);
/* A worker's job that never came back to its exchange. */
void http_dispatch_drop_job(struct prep_job *job);

#endif
