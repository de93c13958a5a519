#include "server/http/http_task.h"

#include "server/http/http_admission.h"
#include "server/http/http_routes.h"

#include <stdlib.h>

#define SHORT_BODY_BYTES (64 * 1024)  /* read and tokenised in some milliseconds */
#define BULK_BODY_BYTES (1024 * 1024) /* in some tenths of a second */

static void run_task(struct prep_job *job) {
    struct http_task *task = (struct http_task *)job; /* job is its first member */
    const struct byte_buffer *body = &task->body;
    if (atomic_load(&task->is_abandoned))
        return;
    int status =
        task->route->parse != NULL
            ? task->route->parse(task->context, body->data, body->length, &task->call, &task->error)
            : task->route->transform(task->context, body->data, body->length, &task->out,
                                     &task->ignored, &task->error);
    if (task->ignored.length > 0)
        byte_buffer_append(&task->ignored, "", 1);
    task->failed = status != 0;
}

static enum prep_queue queue_of(const struct exchange *exchange) {
    if (exchange->body.length <= SHORT_BODY_BYTES)
        return PREP_SHORT;
    if (exchange->route->parse != NULL)
        return PREP_LONG;
    return exchange->body.length <= BULK_BODY_BYTES ? PREP_BULK : PREP_HUGE;
}

int http_task_start(struct connection *connection) {
    struct exchange *exchange = &connection->exchange;
    struct http_task *task = calloc(1, sizeof(*task));
    if (!task)
        return -1;
    task->job.run = run_task;
    task->job.queue = queue_of(exchange);
    task->job.owner = http_admission_owner(connection);
    task->job.num_bytes = exchange->body.length;
    task->connection = connection;
    task->route = exchange->route;
    task->context = key_models_context(exchange->key, connection->server->context, &task->models);
    task->body = exchange->body;
    task->out.max_length = MAX_ANSWER_BYTES;
    task->memory = &connection->server->memory;
    task->owner = http_owner_share(exchange->owner);
    task->held_bytes = exchange->held_bytes;
    exchange->body = (struct byte_buffer){0};
    exchange->held_bytes = 0;
    exchange->task = task;
    exchange->state = EXCHANGE_WAITING;
    prep_workers_push(connection->server->prep, &task->job);
    return 0;
}

void http_task_destroy(struct http_task *task) {
    http_memory_give(task->memory, task->owner, task->held_bytes);
    http_owner_leave(task->memory, task->owner);
    byte_buffer_finish(&task->body);
    byte_buffer_finish(&task->out);
    byte_buffer_finish(&task->ignored);
    api_call_destroy(task->call);
    free(task);
}

void http_task_drop(struct prep_job *job) {
    http_task_destroy((struct http_task *)job);
}

void http_task_abandon(struct http_task *task) {
    task->connection = NULL;
    atomic_store(&task->is_abandoned, true);
}
