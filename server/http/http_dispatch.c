/* Takes a body to its answer, by way of a prep worker and the engine.
 *
 * A stream's response is queued once the engine has its requests: what happens then is an event.
 * Any other is queued when it is whole or has failed, so that the status is true.
 * request->user points to the connection while it wants events of the request and is NULL
 * afterwards; only the I/O thread reads it, so a request may come back from the engine long after
 * its connection is gone. */
#include "server/http/http_dispatch.h"

#include "config/base/clock.h"
#include "config/json/json_parse.h"
#include "server/api/fields/request_limits.h"
#include "server/http/http_admission.h"
#include "server/http/http_background.h"
#include "server/http/http_connection.h"
#include "server/http/http_deadlines.h"
#include "server/http/http_routes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- Prep workers --- */

#define SHORT_BODY_BYTES (64 * 1024)  /* read and tokenised in some milliseconds */
#define BULK_BODY_BYTES (1024 * 1024) /* in some tenths of a second */

/* Reads the model that the body names, if it names one. */
static int read_model_name(struct http_task *task) {
    const char *member = task->route->model_member;
    cJSON *json = json_parse(task->body.data, task->body.length, &task->error);
    if (json == NULL)
        return -1;
    const cJSON *name = cJSON_GetObjectItemCaseSensitive(json, member != NULL ? member : "model");
    int status = 0;
    if (cJSON_IsString(name)) {
        task->model_name = strdup(name->valuestring);
        status = task->model_name != NULL ? 0 : api_error_set_memory(&task->error);
    } else if (name != NULL && !cJSON_IsNull(name)) {
        status = bad_request(&task->error, "invalid_type", "model", "model must be a string");
    }
    cJSON_Delete(json);
    return status;
}

static void run_task(struct prep_job *job) {
    struct http_task *task = (struct http_task *)job; /* job is its first member */
    const struct byte_buffer *body = &task->body;
    if (atomic_load(&task->is_abandoned))
        return;
    if (task->is_naming) {
        task->failed = read_model_name(task) != 0;
        return;
    }
    const struct http_route *route = task->route;
    int status = API_TRANSFORM_PARSES;
    if (route->transform != NULL)
        status = route->transform(task->context, body->data, body->length, &task->out,
                                  &task->ignored, &task->error);
    if (status == API_TRANSFORM_PARSES)
        status = route->parse(task->context, body->data, body->length, &task->call, &task->error);
    if (task->ignored.length > 0)
        byte_buffer_append(&task->ignored, "", 1);
    task->failed = status != 0;
}

static enum prep_queue queue_of(const struct exchange *exchange) {
    if (exchange->route->is_admins) /* a file is read */
        return PREP_HUGE;
    if (exchange->body.length <= SHORT_BODY_BYTES)
        return PREP_SHORT;
    if (exchange->route->parse != NULL)
        return PREP_LONG;
    return exchange->body.length <= BULK_BODY_BYTES ? PREP_BULK : PREP_HUGE;
}

/* Gives the memory of the body back. */
static void destroy_task(struct http_task *task) {
    http_memory_give(task->memory, task->owner, task->held_bytes);
    http_owner_leave(task->memory, task->owner);
    byte_buffer_finish(&task->body);
    byte_buffer_finish(&task->out);
    byte_buffer_finish(&task->ignored);
    api_call_destroy(task->call);
    key_models_finish(&task->models);
    free(task->model_name);
    free(task);
}

/* What is too long is cut: it is none of what is allowed. */
static void copy_target(const struct connection *connection, struct http_task *task) {
    const struct text *argument = &connection->exchange.argument;
    const char *action =
        MHD_lookup_connection_value(connection->mhd, MHD_GET_ARGUMENT_KIND, "action");
    snprintf(task->path_argument, sizeof(task->path_argument), "%.*s", (int)argument->length,
             argument->data != NULL ? argument->data : "");
    snprintf(task->action, sizeof(task->action), "%s", action != NULL ? action : "");
}

int http_dispatch_start(struct connection *connection) {
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
    task->body = exchange->body;
    task->out.max_length = MAX_ANSWER_BYTES;
    task->memory = &connection->server->memory;
    task->owner = http_owner_share(exchange->owner);
    task->held_bytes = exchange->held_bytes;
    copy_target(connection, task);
    exchange->body = (struct byte_buffer){0};
    exchange->held_bytes = 0;
    exchange->task = task;
    exchange->state = EXCHANGE_WAITING;
    task->is_naming =
        exchange->route->manage != NULL || http_models_are_managed(&connection->server->models);
    if (task->is_naming) {
        prep_workers_push(connection->server->prep, &task->job);
        return 0;
    }
    exchange->model = connection->server->models.items[0];
    if (http_models_enter(connection->server, task) == 0)
        return 0;
    exchange->task = NULL;
    destroy_task(task);
    return -1;
}

void http_dispatch_drop(struct prep_job *job) {
    destroy_task((struct http_task *)job);
}

/* --- Engine --- */

#define OUTPUT_RESUME_BYTES (16 * 1024) /* unread output at which a full stream is read again */
#define READY_BATCH 8
#define TURN_MS 10  /* for the engine's events, before the loop handles everything else again */
#define COUNT_MS 20 /* between two counts of what a call holds */

static void become_ready(struct connection *connection, enum exchange_state state) {
    connection->exchange.state = state;
    http_connection_wake(connection);
}

static int refuse_submit(enum submit_result result, struct engine *engine,
                         const struct request *request, struct api_error *err) {
    switch (result) {
    case SUBMIT_QUEUE_FULL:
        return api_error_set(err, 429, "rate_limit_error", "queue_full", NULL,
                             "the queue is full; try again");
    case SUBMIT_TOO_LARGE:
        return request_limits_refuse(request, engine_limits(engine), err);
    case SUBMIT_STOPPING:
        return api_error_set(err, 503, "server_error", "shutting_down", NULL,
                             "the server is shutting down");
    case SUBMIT_ASLEEP:
        return http_admission_refuse_asleep(err);
    case SUBMIT_NO_ADAPTER:
        return api_error_set(err, 404, "invalid_request_error", "model_not_found", "model",
                             "The model \"%.64s\" was unloaded", request->adapter->name);
    default:
        return api_error_set(err, 503, "server_error", "engine_failed", NULL, "the device failed");
    }
}

/* Submits all requests of the call or none. */
static int submit_all(struct connection *connection) {
    struct http_server *server = connection->server;
    struct exchange *exchange = &connection->exchange;
    struct engine *engine = exchange->model->parts.engine;
    int num_requests = api_call_num_requests(exchange->call);
    if (http_admission_check_prompts(connection) != 0)
        return -1;
    for (int i = 0; i < num_requests; i++) {
        http_admission_prepare(connection, api_call_request(exchange->call, i));
        http_admission_set_deadlines(connection, i);
    }
    if (http_admission_check_wait(connection) != 0)
        return -1;
    for (int i = 0; i < num_requests; i++) {
        struct request *request = api_call_request(exchange->call, i);
        request->user = connection;
        enum submit_result result = engine_submit(engine, request);
        if (result == SUBMIT_OK)
            continue;
        const struct request *refused = request;
        request->user = NULL;
        while (i-- > 0) {
            request = api_call_request(exchange->call, i);
            request->user = NULL;
            engine_cancel(engine, request);
        }
        if (result != SUBMIT_TOO_LARGE)
            server->stats.rejected++;
        return refuse_submit(result, engine, refused, &exchange->error);
    }
    http_admission_take_prompts(connection);
    return 0;
}

static int refuse_too_large(struct api_error *err) {
    return bad_request(err, "answer_too_large", NULL,
                       "the answer would have more than %d bytes; request less", MAX_ANSWER_BYTES);
}

/* Says whose fault it is: an answer that is alone, or holds as much as any may, was not kept from
 * its memory by others. */
static int refuse_answer(struct connection *connection, struct api_error *err) {
    const struct exchange *exchange = &connection->exchange;
    if (connection->server->memory.used_bytes == exchange->held_bytes ||
        exchange->held_bytes > MAX_ANSWER_BYTES)
        return refuse_too_large(err);
    connection->server->stats.rejected++;
    return api_error_set(err, 503, "server_error", "overloaded", NULL,
                         "the answers of the requests in flight leave no memory for this one; read "
                         "them or request less");
}

/* Counts the memory of the answer so far, with what libmicrohttpd has of a long one. As much as a
 * stream may leave unread is every client's own. False: its owner has no right to the rest. */
static bool count_held(struct connection *connection) {
    struct exchange *exchange = &connection->exchange;
    size_t bytes = exchange->out.capacity;
    if (bytes > OUTPUT_LIMIT_BYTES)
        bytes += WHOLE_BLOCK_BYTES;
    if (exchange->call)
        bytes += api_call_held_bytes(exchange->call);
    if (connection->mhd == NULL)
        bytes += sizeof(*connection);
    else
        bytes = bytes > OUTPUT_LIMIT_BYTES ? bytes - OUTPUT_LIMIT_BYTES : 0;
    if (bytes > exchange->held_bytes)
        return http_deadlines_take_memory(connection, bytes - exchange->held_bytes);
    http_memory_give(&connection->server->memory, exchange->owner, exchange->held_bytes - bytes);
    exchange->held_bytes = bytes;
    return true;
}

int http_dispatch_hold_answer(struct connection *connection) {
    struct exchange *exchange = &connection->exchange;
    int status = 0;
    if (exchange->out.is_full)
        status = refuse_too_large(&exchange->error);
    else if (exchange->out.failed)
        status = api_error_set_memory(&exchange->error);
    else if (!count_held(connection))
        status = refuse_answer(connection, &exchange->error);
    if (status != 0)
        byte_buffer_finish(&exchange->out);
    return status;
}

/* Begins to compute the exchange's call. */
static void start_call(struct connection *connection) {
    struct exchange *exchange = &connection->exchange;
    int status = submit_all(connection);
    if (status == 0 && api_call_is_background(exchange->call)) {
        status = http_background_begin(connection);
        if (status != 0)
            http_connection_cancel(connection);
    } else if (status == 0 && api_call_is_stream(exchange->call)) {
        exchange->is_event_stream = true;
        exchange->output_ms = clock_now_ms();
        api_call_begin_stream(exchange->call, &exchange->out);
    } else if (status == 0) {
        return;
    }
    if (status != 0) {
        api_call_destroy(exchange->call);
        exchange->call = NULL;
    }
    become_ready(connection, status != 0                 ? EXCHANGE_READY_ERROR
                             : exchange->is_event_stream ? EXCHANGE_READY_STREAM
                                                         : EXCHANGE_READY_BODY);
}

/* Takes the task's results over. */
static void accept_task(struct connection *connection, struct http_task *task) {
    struct exchange *exchange = &connection->exchange;
    exchange->task = NULL;
    if (task->failed) {
        exchange->error = task->error;
        become_ready(connection, EXCHANGE_READY_ERROR);
    } else if (!task->call) { /* a transform's answer */
        exchange->out = task->out;
        task->out = (struct byte_buffer){0};
        exchange->ignored = task->ignored;
        task->ignored = (struct byte_buffer){0};
        become_ready(connection, EXCHANGE_READY_BODY);
    } else {
        exchange->call = task->call;
        task->call = NULL;
        start_call(connection);
    }
}

/* Has the route answer about the model. */
static void manage(struct connection *connection, struct http_task *task) {
    struct exchange *exchange = &connection->exchange;
    struct http_model *model = exchange->model;
    exchange->task = NULL;
    exchange->model = NULL;
    int status = exchange->route->manage(connection, model);
    become_ready(connection, status == 0 ? EXCHANGE_READY_BODY : EXCHANGE_READY_ERROR);
    destroy_task(task);
}

/* Has the task's connection enter the model that its body names. */
static void find_model(struct connection *connection, struct http_task *task) {
    static const char tag[] = ":latest"; /* Ollama's, of a name without another */
    struct exchange *exchange = &connection->exchange;
    const struct http_models *models = &connection->server->models;
    char *name = task->model_name;
    size_t length = name != NULL ? strlen(name) : 0;
    struct api_error error, again;
    int status = http_models_find(models, exchange->key, name, &exchange->model, &error);
    if (status != 0 && length > strlen(tag) && strcmp(name + length - strlen(tag), tag) == 0) {
        name[length - strlen(tag)] = '\0';
        status = http_models_find(models, exchange->key, name, &exchange->model, &again);
    }
    task->is_naming = false;
    if (status == 0 && exchange->route->manage != NULL) {
        manage(connection, task);
        return;
    }
    if (status == 0 && http_models_enter(connection->server, task) != 0)
        status = api_error_set_memory(&error);
    if (status != 0)
        http_dispatch_refuse(task, &error, 0);
}

int http_dispatch_parse(struct http_task *task) {
    struct exchange *exchange = &task->connection->exchange;
    task->context =
        key_models_context(exchange->key, exchange->model->parts.context, &task->models);
    if (key_models_keep(&task->models) != 0)
        return -1;
    if (task->context != &task->models.context)
        task->models.context = *task->context;
    task->context = &task->models.context;
    task->models.context.path_argument = task->path_argument;
    task->models.context.action = task->action[0] != '\0' ? task->action : NULL;
    prep_workers_push(task->connection->server->prep, &task->job);
    return 0;
}

void http_dispatch_refuse(struct http_task *task, const struct api_error *error, int64_t retry_ms) {
    struct connection *connection = task->connection;
    if (connection != NULL) {
        struct exchange *exchange = &connection->exchange;
        exchange->task = NULL;
        exchange->error = *error;
        exchange->retry_ms = retry_ms;
        connection->server->stats.rejected += error->status == 503;
        if (!exchange->is_let_in)
            exchange->model = NULL;
        become_ready(connection, EXCHANGE_READY_ERROR);
    }
    destroy_task(task);
}

void http_dispatch_prepared(struct prep_job *job) {
    struct http_task *task = (struct http_task *)job;
    if (task->connection != NULL && task->is_naming && !task->failed) {
        find_model(task->connection, task);
        return;
    }
    if (task->connection)
        accept_task(task->connection, task);
    destroy_task(task);
}

/* An error in a stream, or of a call in the background, counts by the status that it would have
 * had. */
static void note_error(struct connection *connection) {
    struct exchange *exchange = &connection->exchange;
    bool is_answered = api_call_is_stream(exchange->call) || api_call_is_background(exchange->call);
    if (api_call_error(exchange->call, &exchange->error) && is_answered)
        metrics_http_count_error(&connection->server->stats, exchange->error.status,
                                 exchange->error.code);
}

static void advance(struct connection *connection) {
    struct exchange *exchange = &connection->exchange;
    bool is_done = api_call_is_done(exchange->call);
    if (!api_call_is_stream(exchange->call)) {
        if (is_done)
            become_ready(connection,
                         exchange->error.status != 0 ? EXCHANGE_READY_ERROR : EXCHANGE_READY_BODY);
    } else if (is_done || exchange->out.length > 0 || exchange->out.failed) {
        http_connection_wake(connection);
    }
}

/* Ends a call that holds more than its owner may. */
static void bound_held(struct connection *connection) {
    struct exchange *exchange = &connection->exchange;
    int64_t now_ms = clock_now_ms();
    if (!api_call_is_done(exchange->call) && now_ms - exchange->counted_ms < COUNT_MS)
        return;
    exchange->counted_ms = now_ms;
    if (count_held(connection))
        return;
    struct api_error error;
    refuse_answer(connection, &error);
    http_connection_cancel(connection);
    if (!api_call_is_stream(exchange->call))
        byte_buffer_finish(&exchange->out);
    api_call_fail(exchange->call, &error, &exchange->out);
}

static void read_request(struct connection *connection, struct request *request) {
    struct exchange *exchange = &connection->exchange;
    bool has_client = connection->mhd != NULL;
    if (api_call_is_done(exchange->call)) /* another of its requests has failed */
        return;
    if (has_client && api_call_is_stream(exchange->call) &&
        exchange_pending(exchange) >= OUTPUT_LIMIT_BYTES) {
        exchange->is_unread = true;
        return;
    }
    size_t before = exchange->out.length;
    api_call_read(exchange->call, request, &exchange->out);
    http_admission_take_output(connection);
    if (exchange->out.length > before)
        exchange->output_ms = clock_now_ms();
    bound_held(connection);
    if (api_call_is_done(exchange->call))
        note_error(connection);
    if (has_client)
        advance(connection);
    else
        http_background_advance(connection);
}

/* Long answers are written here, some megabytes each. */
bool http_dispatch_take_ready(struct engine *engine) {
    struct request *ready[READY_BATCH];
    int64_t deadline_ms = clock_now_ms() + TURN_MS;
    int count;
    do {
        count = engine_take_ready(engine, ready, READY_BATCH);
        for (int i = 0; i < count; i++) {
            struct connection *connection = ready[i]->user;
            if (connection)
                read_request(connection, ready[i]);
            request_unref(ready[i]);
        }
    } while (count == READY_BATCH && clock_now_ms() < deadline_ms);
    engine_resume_reading(engine);
    return count == READY_BATCH;
}

void http_dispatch_output_drained(struct connection *connection) {
    struct exchange *exchange = &connection->exchange;
    if (!exchange->is_unread || exchange_pending(exchange) > OUTPUT_RESUME_BYTES)
        return;
    exchange->is_unread = false;
    int num_requests = api_call_num_requests(exchange->call);
    for (int i = 0; i < num_requests; i++)
        read_request(connection, api_call_request(exchange->call, i));
    engine_resume_reading(exchange->model->parts.engine);
}
