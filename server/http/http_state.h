/* The data that the http_*.c files share; nobody else includes this. Each file's own header says
 * what it does with it. Everything here belongs to the I/O thread.
 *
 * A TCP connection carries exchanges (request and answer) one after the other. An exchange that
 * needs tokens is suspended inside libmicrohttpd while it waits:
 *
 *   READING -> WAITING (prep worker, then engine) -> READY_* -> ANSWERED
 *      \-----> READY_* directly, for answers that need no waiting
 */
#ifndef QUIRE_SERVER_HTTP_HTTP_STATE_H
#define QUIRE_SERVER_HTTP_HTTP_STATE_H

#include "config/base/text.h"
#include "server/api/responses/response_store.h"
#include "server/http/http_checks.h"
#include "server/http/http_memory.h"
#include "server/http/http_models.h"
#include "server/http/http_server.h"
#include "server/http/prep_workers.h"
#include "server/keys/api_keys.h"
#include "server/telemetry/trace.h"

#include <microhttpd.h>
#include <stdatomic.h>

#define OUTPUT_LIMIT_BYTES (64 * 1024) /* unread output of a stream before we stop reading it */
#define WHOLE_BLOCK_BYTES (32 * 1024)  /* libmicrohttpd's, for an answer read in pieces */
#define MAX_ANSWER_BYTES (64 * 1024 * 1024) /* of one answer; beyond: 400 */
#define METHOD_BYTES 16                     /* a longer one is cut; none of ours is */
#define HTTP_IDLE_TIMEOUT_MS 75000          /* end of an exchange to the next complete header */

enum exchange_state {
    EXCHANGE_NONE,         /* between exchanges */
    EXCHANGE_READING,      /* the body arrives */
    EXCHANGE_DRAINING,     /* the body arrives and is dropped; `error` is what to answer */
    EXCHANGE_WAITING,      /* suspended: with a prep worker, or the answer is incomplete */
    EXCHANGE_READY_ERROR,  /* `error` is the answer */
    EXCHANGE_READY_BODY,   /* `out` is the answer */
    EXCHANGE_READY_STREAM, /* accepted; more comes through `out` */
    EXCHANGE_ANSWERED,     /* a response is queued; for a stream, more comes through `out` */
};

/* Zeroed in state NONE. The comment above a group of fields names the states in which it is set;
 * before them it is zero or NULL. */
struct exchange {
    enum exchange_state state;

    /* READING and all later states: from the header. */
    const struct http_dialect *dialect; /* NULL: refused before it was found */
    const struct http_route *route; /* NULL: refused before it was found; set where it is WAITING */
    struct text argument;           /* the part of the path for the route's name in braces */
    char request_id[REQUEST_ID_BYTES];
    struct http_origin_request origin;
    struct trace_context trace; /* of its traceparent */
    struct api_key *key;        /* NULL: none is needed, or refused before it was found */
    struct http_owner *owner;   /* used; NULL: refused before it was known */
    struct http_model *model;   /* that computes it; NULL: not known yet, or none does */
    bool is_let_in;             /* counted in its num_calls */
    bool follows_models;        /* a stream of what becomes of the models */
    char method[METHOD_BYTES];
    const char *allow;    /* methods for a 405 or OPTIONS; NULL: no such path */
    uint64_t body_length; /* as announced; UINT64_MAX: chunked */
    int64_t start_ns;
    int64_t timeout_ms; /* by its header; 0: none */
    bool must_close;    /* may become true later */
    bool is_http_1_0;

    /* READING and all later states: memory counted in http_server.memory. READING: for the body.
     * WAITING with a worker: none, the task has it. Later: for call and `out`. */
    size_t held_bytes;

    /* READING, DRAINING: the body. */
    struct byte_buffer body; /* only in READING; the task has it in WAITING */
    struct byte_buffer
        logged_body; /* its beginning; WAITING and all later states, if it is logged */
    uint64_t body_received;
    int64_t received_ms; /* last time a part of the body arrived */

    /* DRAINING, READY_ERROR: the answer. ANSWERED: what a stream ended with. */
    struct api_error error;
    int64_t retry_ms; /* time after which the client may retry; 0: the server's default; -1:
                         retrying is useless */

    /* WAITING and all later states. */
    bool is_pending; /* counted in http_server.num_pending and num_api_calls, for its owner and its
                        key */
    struct http_task *task; /* only in WAITING, while a worker has it */
    bool awaits_rest;       /* set in WAITING: waits until the engine reaches a sleep state */
    enum engine_rest awaited_rest;
    struct engine_rest_view rest_before; /* the state when the wait began */
    struct api_call *call;               /* once it is parsed; NULL: a transform */
    int num_requests;                    /* of the call, once they are submitted */
    int64_t num_generated;               /* tokens of it, as counted for the key */
    int64_t num_planned;  /* that it may generate, once it was checked against the key's limits */
    int64_t num_reserved; /* of these, reserved from the key's limit and not generated yet */
    int64_t counted_ms;   /* last time the call's and the output's memory was counted */
    bool is_unread;       /* the call has events left in the engine: output was full */

    /* READY_STREAM, ANSWERED. */
    bool is_event_stream; /* the answer is one */
    struct connection
        *followed; /* of a stream without a call (http_background.h): the connection whose events
                      are sent; NULL: all are present, in `out` or kept */
    size_t followed_bytes; /* bytes of its events already taken */

    /* WAITING, READY_BODY, READY_STREAM, ANSWERED: the answer; READING where a route answers by
     * itself. */
    struct byte_buffer out;
    int64_t output_ms;                 /* last time `out` grew; before: its stream's start */
    struct byte_buffer ignored;        /* of a transform: names for X-Ignored-Params */
    int status;                        /* of an answer that is not an error; 0: 200 */
    const struct header_field *fields; /* of this answer alone; NULL: none */

    /* READING and ANSWERED: an answer that is not in `out` but stored elsewhere. */
    struct text constant;        /* lives as long as the server; no data: none */
    struct response_reader kept; /* zeroed: none */

    /* ANSWERED: how the client reads it. */
    int answered_status;
    uint64_t whole_bytes; /* length of a body that is not in `out` */
    size_t out_taken;     /* bytes at the front of `out` that the response's reader has read */
    uint64_t taken_bytes; /* since the response was queued */
    bool is_whole;        /* an answer of known length, read in pieces */
    int64_t answer_ms;    /* when its response was queued */
    int64_t drain_ms;     /* last time `out` shrank or the client took bytes of it */
    int unacked_bytes;    /* in the kernel when last checked */

    bool is_deferred; /* READING: the body is complete, and the answer is made in a later turn */
    bool is_logged;
};

/* Returns the bytes of unread output. */
static inline size_t exchange_pending(const struct exchange *exchange) {
    return exchange->out.length - exchange->out_taken;
}

/* Returns the bytes of an answer that are present and not read yet. */
static inline size_t exchange_untaken(const struct exchange *exchange) {
    size_t elsewhere = exchange->constant.length + exchange->kept.length;
    return elsewhere > 0 ? elsewhere - (size_t)exchange->taken_bytes : exchange_pending(exchange);
}

struct connection {
    struct http_server *server;
    struct connection *prev, *next; /* in server->connections, or in server->background */
    struct MHD_Connection *mhd;     /* NULL: there is no client */
    int fd;
    struct http_owner *address; /* used, and counted in its num_connections unless closed */
    int64_t since_ms;           /* accept, or the end of the last exchange */
    bool is_first;              /* no exchange has begun yet */
    bool is_surplus;            /* opened when all were in use: refused while they still are */
    bool is_closed;      /* no longer counted: nothing is expected of it, or we gave up on it */
    bool is_shut;        /* we gave up on it: the socket is shut down */
    bool is_half_closed; /* the client sends nothing more; it may still read, or be gone */
    int64_t closed_ms;   /* when that was seen */
    int64_t probe_ms;    /* if is_half_closed: when to find out which of the two */
    bool is_suspended;
    int64_t num_followers; /* if without a client: exchanges that follow it */
    bool is_ended;         /* if without a client: the call has ended, and followers keep it */
    struct exchange exchange;
};

/* A body with a prep worker, which parses it or turns it into an answer. The worker owns it until
 * it returns the job; whoever takes the job destroys it. */
struct http_task {
    struct prep_job job;
    struct connection *connection; /* NULL once it is gone; the worker never reads it */
    atomic_bool is_abandoned;      /* nobody wants the result: will not be started any more */
    const struct http_route *route;
    bool is_naming;                     /* only the model's name is read */
    struct http_task *next_waiting;     /* http_models.c */
    int64_t waiting_ms;                 /* since when, there */
    char path_argument[24], action[16]; /* for the context */
    struct key_models models;
    const struct api_context *context; /* with the models that the key may use */
    struct byte_buffer body;
    struct http_memory *memory;
    struct http_owner *owner; /* used */
    size_t held_bytes;        /* of the memory, for the body */
    /* results */
    bool failed;
    struct api_error error;
    char *model_name; /* that the body names; NULL: none */
    struct byte_buffer out;
    struct byte_buffer ignored; /* of a transform; with its NUL, or empty */
    struct api_call *call;
};

struct http_server {
    struct http_server_config config;
    struct http_models models;
    struct api_keys *keys;
    struct prep_workers *prep;
    struct MHD_Daemon *daemon;
    struct tls_front *tls;    /* accepts instead of the daemon; NULL: plain HTTP */
    struct MHD_Daemon *admin; /* of --admin-socket, or NULL */
    int epoll_fd, signal_fd;
    struct connection *connections;
    struct connection *background; /* of calls without a client (http_background.h) */
    int64_t num_pending;   /* uncompleted exchanges that were passed to a worker or follow another
                              one; stopping waits for them */
    int64_t num_api_calls; /* of these: those computed by workers or the engine */
    int64_t num_awaiting;  /* exchanges with awaits_rest */
    unsigned woken_tags;   /* while the server sleeps: bits of http_control.c */
    int64_t num_closed;    /* of stats.connections: those that are is_closed and will go soon */
    struct http_memory memory;
    struct MHD_Response *out_of_memory; /* the answer when memory is too short for an answer */
    struct byte_buffer openapi;         /* an answer that never changes */
    size_t made_bytes; /* bytes of answers that routes made themselves in this turn of the loop */
    int64_t num_deferred; /* exchanges whose answers wait for the next turn */
    struct http_stats stats;
    struct traffic_log refusals;
    int64_t tick_ms, status_ms, watchdog_ms, watchdog_due_ms;
    int64_t start_ms;
    bool is_draining;    /* by /admin/drain: like stopping, but without an end */
    int64_t stop_due_ms; /* when an announced stop begins; 0: none announced */
    bool is_stopping, has_failed;
    bool refuses_work; /* while stopping: from the beginning or, on a passed socket, only at the end
                        */
    int64_t stop_ms, stop_deadline_ms;
};

/* Returns whether clients should go elsewhere. */
static inline bool http_is_closing(const struct http_server *server) {
    return server->is_draining || server->stop_due_ms != 0 || server->is_stopping ||
           server->has_failed;
}

/* Returns the model of an exchange or, where it has none, the default one. */
static inline struct http_model *http_model_of(const struct connection *connection) {
    struct http_model *model = connection->exchange.model;
    return model != NULL ? model : connection->server->models.items[0];
}

static inline bool http_has_too_many_connections(const struct http_server *server) {
    return server->stats.connections - server->num_closed > server->config.max_connections;
}

#endif
