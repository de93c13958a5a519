/* A body with a prep worker, which parses it or makes an answer of it. It is the worker's from
 * http_task_start until the worker gives its job back; whoever takes that destroys it. */
#ifndef QUIRE_SERVER_HTTP_HTTP_TASK_H
#define QUIRE_SERVER_HTTP_HTTP_TASK_H

#include "server/http/http_state.h"
#include "server/keys/key_models.h"

#include <stdatomic.h>

struct http_task {
    struct prep_job job;
    struct connection *connection; /* NULL once it is gone; the worker never reads it */
    atomic_bool is_abandoned;      /* nobody wants the result: not begun any more */
    const struct http_route *route;
    struct key_models models;
    const struct api_context *context; /* with the models that the key may use */
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

/* Hands the exchange's body to a worker; the exchange is then WAITING. -1: no memory. */
int http_task_start(struct connection *connection);
/* Forgets the connection: the worker does not begin any more, and nobody takes the results. */
void http_task_abandon(struct http_task *task);
/* Gives the memory of the body back. */
void http_task_destroy(struct http_task *task);
/* Destroys a task whose job never came back to its exchange; for prep_workers_destroy. */
void http_task_drop(struct prep_job *job);

#endif
