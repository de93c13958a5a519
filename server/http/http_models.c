#include "server/http/http_models.h"

#include "config/base/clock.h"
#include "config/base/log.h"
#include "config/base/numbers.h"
#include "engine/request/adapter.h"
#include "server/api/call/served_adapters.h"
#include "server/http/http_model_room.h"
#include "server/http/http_state.h"

#include <stdio.h>
#include <string.h>

#define RETRY_MS 10000  /* after a failed start, before the next */
#define CONTEST_TURNS 3 /* who is brought back within as many is contested: it slept for one */

/* --- Names --- */

static bool is_among(const char *name, char *const *names, int count) {
    for (int i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

static bool has_adapter(const struct http_model *model, const char *name) {
    struct served_adapters *adapters =
        http_model_is_loaded(model) ? model->parts.context->adapters : NULL;
    struct adapter *adapter = adapters != NULL ? served_adapters_find(adapters, name) : NULL;
    adapter_unref(adapter);
    return adapter != NULL || is_among(name, model->adapter_names, model->num_adapter_names);
}

static bool allows(const struct api_key *key, const char *name) {
    return key == NULL || key->entry.num_models == 0 ||
           is_among(name, key->entry.models, key->entry.num_models);
}

bool http_models_allow(const struct api_key *key, const struct http_model *model) {
    bool is_allowed = key == NULL || key->entry.num_models == 0;
    for (int i = 0; i < model->num_names && !is_allowed; i++)
        is_allowed = allows(key, model->names[i]);
    for (int i = 0; !is_allowed && i < key->entry.num_models; i++)
        is_allowed = has_adapter(model, key->entry.models[i]);
    return is_allowed && !model->is_removed;
}

bool http_models_any(const struct http_models *models, const struct api_key *key) {
    for (int i = 0; i < models->count; i++)
        if (http_models_allow(key, models->items[i]))
            return true;
    return false;
}

static struct http_model *find(const struct http_models *models, const struct api_key *key,
                               const char *name) {
    struct http_model *any = NULL;
    for (int i = 0; i < models->count; i++) {
        struct http_model *model = models->items[i];
        if (name == NULL
                ? http_models_allow(key, model)
                : !model->is_removed && allows(key, name) &&
                      (is_among(name, model->names, model->num_names) || has_adapter(model, name)))
            return model;
        if (model->takes_any_name && any == NULL && http_models_allow(key, model))
            any = model;
    }
    return any;
}

int http_models_find(const struct http_models *models, const struct api_key *key, const char *name,
                     struct http_model **out, struct api_error *err) {
    char others[256] = "";
    size_t length = 0;
    *out = find(models, key, name);
    if (*out != NULL)
        return 0;
    for (int i = 0; i < models->count && length < sizeof(others) - 1; i++)
        if (http_models_allow(key, models->items[i]))
            length += (size_t)snprintf(others + length, sizeof(others) - length, "%s\"%.64s\"",
                                       length > 0 ? ", " : "", models->items[i]->names[0]);
    if (others[0] == '\0')
        return api_error_set(err, 404, "invalid_request_error", "model_not_found", "model",
                             "this API key may use none of the models here");
    return api_error_set(err, 404, "invalid_request_error", "model_not_found", "model",
                         "The model \"%.64s\" does not exist%s; this server has %s", name,
                         key != NULL ? ", or may not be used with this API key" : "", others);
}

/* --- Bodies that wait --- */

static void put_waiting(struct http_model *model, struct http_task *task) {
    task->next_waiting = NULL;
    task->waiting_ms = clock_now_ms();
    if (model->last_waiting != NULL)
        model->last_waiting->next_waiting = task;
    else
        model->first_waiting = task;
    model->last_waiting = task;
    model->num_waits++;
}

static struct http_task *take_waiting(struct http_model *model) {
    struct http_task *task = model->first_waiting;
    if (task == NULL)
        return NULL;
    model->first_waiting = task->next_waiting;
    if (model->first_waiting == NULL)
        model->last_waiting = NULL;
    return task;
}

static int let_in(struct http_server *server, struct http_model *model, struct http_task *task) {
    task->connection->exchange.is_let_in = true;
    model->num_calls++;
    model->used_ms = clock_now_ms();
    return server->models.front.parse(task);
}

static bool is_open(const struct http_model *model) {
    return model->state == HTTP_MODEL_AWAKE && !model->is_door_closed && !model->has_failed &&
           !model->is_removed && !model->is_unwanted;
}

static void let_all_in(struct http_server *server, struct http_model *model) {
    struct http_task *task;
    struct api_error error;
    api_error_set_memory(&error);
    while (is_open(model) && (task = take_waiting(model)) != NULL)
        if (task->connection == NULL || let_in(server, model, task) != 0)
            server->models.front.refuse(task, &error, 0);
}

static void refuse_all(struct http_server *server, struct http_model *model,
                       const struct api_error *error, int64_t retry_ms) {
    struct http_task *task;
    while ((task = take_waiting(model)) != NULL)
        server->models.front.refuse(task, error, retry_ms);
}

/* Returns whether the body is not to wait any longer: its client is gone, or its time is up. */
static bool is_over(const struct http_server *server, const struct http_task *task,
                    int64_t now_ms) {
    int64_t queue_ms = server->config.queue_timeout_ms;
    if (task->connection == NULL || (queue_ms > 0 && now_ms - task->waiting_ms > queue_ms))
        return true;
    const struct exchange *exchange = &task->connection->exchange;
    return exchange->timeout_ms > 0 &&
           now_ms - exchange->start_ns / CLOCK_NS_PER_MS > exchange->timeout_ms;
}

static void sweep_waiting(struct http_server *server, struct http_model *model) {
    struct http_task **link = &model->first_waiting, *last = NULL, *task;
    int64_t now_ms = clock_now_ms();
    struct api_error error;
    api_error_set(&error, 503, "server_error", "queue_timeout", NULL,
                  "the model \"%.64s\" was not loaded in the time that the request may wait; try "
                  "again later",
                  model->names[0]);
    while ((task = *link) != NULL) {
        if (is_over(server, task, now_ms)) {
            *link = task->next_waiting;
            server->models.front.refuse(task, &error, 0);
        } else {
            last = task;
            link = &task->next_waiting;
        }
    }
    model->last_waiting = last;
}

/* --- Changes of state --- */

static void move(struct http_server *server, struct http_model *model,
                 enum http_model_state state) {
    model->state = state;
    model->moved_ms = clock_now_ms();
    server->models.front.changed(server, model);
}

static void start_job(struct http_server *server, struct http_model *model,
                      enum http_model_state state, enum http_model_job job) {
    struct http_models *models = &server->models;
    models->moving = model;
    models->job = job;
    atomic_store(&model->load_progress, 0);
    move(server, model, state);
    models->loader.start(models->loader.context, model, job);
}

static void keep_place(const struct http_server *server, struct http_model *model, int64_t now_ms) {
    int64_t turn_ms = server->models.turn_ms;
    model->keeps_ms =
        model->is_contested ? min_int64(model->awake_ms + turn_ms, now_ms + turn_ms / 10) : 0;
}

static void become_awake(struct http_server *server, struct http_model *model) {
    int64_t now_ms = clock_now_ms();
    model->load_ms = now_ms - model->moved_ms;
    model->awake_ms = model->used_ms = now_ms;
    model->is_contested =
        model->slept_ms > 0 && now_ms - model->slept_ms < CONTEST_TURNS * server->models.turn_ms;
    keep_place(server, model, now_ms);
    model->is_wanted = model->is_door_closed = false;
    model->failure[0] = '\0';
    model->retry_ms = 0;
    model->num_loads++;
    log_info("model      %s is ready after %lld ms; %.0f of %.0f MiB are used", model->names[0],
             (long long)model->load_ms, (double)http_models_used_bytes(&server->models) / (1 << 20),
             (double)server->models.memory_bytes / (1 << 20));
    move(server, model, HTTP_MODEL_AWAKE);
    let_all_in(server, model);
}

/* Its last start failed, a moment ago. */
static void refuse_failed(struct http_server *server, struct http_model *model) {
    struct api_error error;
    api_error_set(&error, 503, "server_error", "model_not_loaded", "model",
                  "the model \"%.64s\" %s; the server's log says why", model->names[0],
                  model->failure);
    model->is_wanted = false;
    refuse_all(server, model, &error, model->retry_ms - clock_now_ms());
}

/* Errors name files, which clients are not told. */
static void fail(struct http_server *server, struct http_model *model, const char *what,
                 enum http_model_state state, const struct error *err) {
    log_error("model %s: %s: %s", model->names[0], what, err->message);
    snprintf(model->failure, sizeof(model->failure), "%s", what);
    model->retry_ms = clock_now_ms() + RETRY_MS;
    move(server, model, state);
    refuse_failed(server, model);
}

/* Nothing is left of it but its row. */
static void forget(struct http_server *server, struct http_model *model) {
    struct http_models *models = &server->models;
    int at = 0;
    while (models->items[at] != model)
        at++;
    memmove(&models->items[at], &models->items[at + 1],
            (size_t)(models->count - at - 1) * sizeof(models->items[0]));
    models->count--;
    log_info("model      %s is not served any more", model->names[0]);
    models->loader.free(models->loader.context, model);
}

static void close_model(struct http_server *server, struct http_model *model) {
    if (http_model_is_loaded(model))
        server->models.front.unwatch(server, model);
    byte_buffer_finish(&model->tokenizer_info);
    model->parts = (struct http_model_parts){.wake_fd = -1};
    model->monitor = (struct engine_monitor){0};
    model->traffic = (struct traffic_log){0};
    model->has_failed = model->is_door_closed = model->is_unwanted = false;
    start_job(server, model, HTTP_MODEL_CLOSING, HTTP_MODEL_CLOSE);
}

static void end_job(struct http_server *server, struct http_model *model, const struct error *err) {
    bool has_failed = err->code != ERROR_NONE;
    switch (server->models.job) {
    case HTTP_MODEL_PLAN:
        model->is_planned = !has_failed;
        if (has_failed)
            fail(server, model, "cannot be opened", HTTP_MODEL_UNLOADED, err);
        else
            move(server, model, HTTP_MODEL_UNLOADED);
        break;
    case HTTP_MODEL_LOAD:
        model->is_planned = !has_failed;
        if (has_failed || server->models.front.watch(server, model) != 0)
            fail(server, model, "cannot be loaded", HTTP_MODEL_UNLOADED, err);
        else
            become_awake(server, model);
        break;
    case HTTP_MODEL_CLOSE:
        move(server, model, HTTP_MODEL_UNLOADED);
        break;
    }
}

static void begin_wake(struct http_server *server, struct http_model *model) {
    server->models.moving = model;
    move(server, model, HTTP_MODEL_WAKING);
    struct engine_rest_view now;
    engine_wake(model->parts.engine, &now);
}

static bool begin_sleep(struct http_server *server, struct http_model *model,
                        bool discards_weights) {
    struct engine_rest_view now;
    if (!engine_sleep(model->parts.engine, discards_weights, &now))
        return false;
    log_info("model      %s goes to sleep %s", model->names[0],
             discards_weights ? "without its weights" : "with its weights");
    model->has_weights = !discards_weights;
    model->is_door_closed = false;
    model->num_sleeps++;
    server->models.moving = model;
    move(server, model, HTTP_MODEL_FALLING_ASLEEP);
    return true;
}

/* Takes what has ended of the model that moves. */
static void settle(struct http_server *server) {
    struct http_models *models = &server->models;
    struct http_model *model = models->moving;
    struct error err = {0};
    if (model == NULL)
        return;
    if (model->state != HTTP_MODEL_FALLING_ASLEEP && model->state != HTTP_MODEL_WAKING) {
        if (!models->loader.take(models->loader.context, &err))
            return;
        models->moving = NULL;
        end_job(server, model, &err);
        return;
    }
    const struct engine_rest_view now = engine_get_rest(model->parts.engine);
    bool is_falling = model->state == HTTP_MODEL_FALLING_ASLEEP;
    if (now.rest == ENGINE_FALLING_ASLEEP || now.rest == ENGINE_WAKING)
        return;
    models->moving = NULL;
    if (now.rest == ENGINE_AWAKE)
        become_awake(server, model);
    else if (is_falling) {
        model->is_unwanted = false;
        model->slept_ms = clock_now_ms();
        move(server, model, HTTP_MODEL_ASLEEP);
    } else {
        error_set(&err, ERROR_DEVICE, "it stays asleep");
        fail(server, model, "cannot wake up", HTTP_MODEL_ASLEEP, &err);
    }
}

/* --- Whose turn it is --- */

static int64_t waits_since_ms(const struct http_model *model) {
    if (model->first_waiting == NULL)
        return model->is_wanted ? model->wanted_ms : INT64_MAX;
    int64_t ms = model->first_waiting->waiting_ms;
    return model->is_wanted ? min_int64(ms, model->wanted_ms) : ms;
}

/* The one that has waited longest; NULL: none waits. */
static struct http_model *next_wanted(const struct http_models *models) {
    struct http_model *next = NULL;
    for (int i = 0; i < models->count; i++) {
        struct http_model *model = models->items[i];
        bool is_away = model->state == HTTP_MODEL_UNLOADED || model->state == HTTP_MODEL_ASLEEP;
        int64_t since_ms = is_away && !model->is_removed ? waits_since_ms(model) : INT64_MAX;
        if (since_ms < INT64_MAX && (next == NULL || since_ms < waits_since_ms(next)))
            next = model;
    }
    return next;
}

static void open_doors(struct http_server *server) {
    struct http_models *models = &server->models;
    for (int i = 0; i < models->count; i++) {
        models->items[i]->is_door_closed = false;
        let_all_in(server, models->items[i]);
    }
}

static void refuse_for_memory(struct http_server *server, struct http_model *wanted) {
    const struct http_models *models = &server->models;
    struct api_error error;
    api_error_set(&error, 503, "server_error", "model_too_large", "model",
                  "the model \"%.64s\" needs %zu MiB of the %zu MiB of --memory, %s",
                  wanted->names[0], wanted->memory.bytes >> 20, models->memory_bytes >> 20,
                  http_model_room_explain(models, wanted));
    if (wanted->failure[0] == '\0')
        log_warning("%s", error.message);
    wanted->is_wanted = false;
    snprintf(wanted->failure, sizeof(wanted->failure), "needs more memory than there is for it");
    refuse_all(server, wanted, &error, -1);
}

static void bring(struct http_server *server, struct http_model *wanted) {
    open_doors(server);
    if (http_model_is_loaded(wanted))
        begin_wake(server, wanted);
    else
        start_job(server, wanted, HTTP_MODEL_LOADING, HTTP_MODEL_LOAD);
}

/* Loads the model, or makes room for it. Returns whether something was begun or decided. */
static bool bring_or_make_room(struct http_server *server, struct http_model *wanted) {
    struct http_model *victim;
    bool with_weights;
    switch (http_model_room_find(&server->models, wanted, clock_now_ms(), &victim, &with_weights)) {
    case HTTP_ROOM_ENOUGH:
        bring(server, wanted);
        return true;
    case HTTP_ROOM_SLEEPS:
        return begin_sleep(server, victim, !with_weights);
    case HTTP_ROOM_CLOSES:
        victim->is_planned = false;
        close_model(server, victim);
        return true;
    case HTTP_ROOM_DRAINS:
        victim->is_door_closed = true;
        return false;
    case HTTP_ROOM_LATER:
        return false;
    case HTTP_ROOM_NEVER:
        refuse_for_memory(server, wanted);
        return true;
    }
    return false;
}

/* Gives back what is of no use any more. Returns whether something was begun or decided. */
static bool clean_up(struct http_server *server) {
    struct http_models *models = &server->models;
    for (int i = 0; i < models->count; i++) {
        struct http_model *model = models->items[i];
        bool rests = model->state == HTTP_MODEL_UNLOADED || model->state == HTTP_MODEL_AWAKE ||
                     model->state == HTTP_MODEL_ASLEEP;
        if (!rests || model->num_calls > 0)
            continue;
        if (model->is_removed && model->state == HTTP_MODEL_UNLOADED && !model->is_planned) {
            forget(server, model);
            return true;
        }
        if (model->is_removed || model->has_failed) {
            model->is_planned = false;
            close_model(server, model);
            return true;
        }
        if (model->is_unwanted &&
            (model->state == HTTP_MODEL_AWAKE || http_model_room_has_weights(model)) &&
            begin_sleep(server, model, true))
            return true;
        if (model->is_unwanted && model->state != HTTP_MODEL_AWAKE)
            model->is_unwanted = false;
    }
    return false;
}

/* Returns whether something was begun or decided. */
static bool start_next(struct http_server *server) {
    struct http_models *models = &server->models;
    if (clean_up(server))
        return true;
    struct http_model *wanted = models->is_ended ? NULL : next_wanted(models);
    if (wanted == NULL) {
        open_doors(server);
        return false;
    }
    if (wanted->retry_ms > clock_now_ms()) {
        refuse_failed(server, wanted);
        return true;
    }
    if (wanted->is_planned)
        return bring_or_make_room(server, wanted);
    start_job(server, wanted, HTTP_MODEL_PLANNING, HTTP_MODEL_PLAN);
    return true;
}

void http_models_advance(struct http_server *server) {
    struct http_models *models = &server->models;
    models->is_due = false;
    if (!http_models_are_managed(models))
        return;
    for (int i = 0; i < models->count; i++)
        sweep_waiting(server, models->items[i]);
    do
        settle(server);
    while (models->moving == NULL && start_next(server));
}

/* --- Calls and administrators --- */

int http_models_enter(struct http_server *server, struct http_task *task) {
    struct http_model *model = task->connection->exchange.model;
    if (!http_models_are_managed(&server->models) || is_open(model))
        return let_in(server, model, task);
    put_waiting(model, task);
    if (server->models.is_ended)
        http_models_end(server);
    else
        http_models_advance(server);
    return 0;
}

void http_models_leave(struct http_server *server, struct http_model *model) {
    model->num_calls--;
    model->used_ms = clock_now_ms();
    keep_place(server, model, model->used_ms);
    if (model->num_calls == 0)
        server->models.is_due = true;
}

void http_models_want(struct http_server *server, struct http_model *model) {
    model->is_unwanted = false;
    if (http_model_room_is_awake(model) && model->state != HTTP_MODEL_FALLING_ASLEEP)
        return;
    if (!model->is_wanted)
        model->wanted_ms = clock_now_ms();
    model->is_wanted = true;
    model->retry_ms = 0;
    http_models_advance(server);
}

bool http_models_unload(struct http_server *server, struct http_model *model) {
    if (model->state != HTTP_MODEL_AWAKE && !http_model_room_has_weights(model))
        return false;
    model->is_unwanted = true;
    http_models_advance(server);
    return true;
}

void http_models_remove(struct http_server *server, struct http_model *model) {
    struct api_error error;
    model->is_removed = true;
    api_error_set(&error, 404, "invalid_request_error", "model_not_found", "model",
                  "The model \"%.64s\" is not served any more", model->names[0]);
    refuse_all(server, model, &error, -1);
    http_models_advance(server);
}

void http_models_end(struct http_server *server) {
    struct http_models *models = &server->models;
    struct api_error error;
    models->is_ended = true;
    api_error_set(&error, 503, "server_error", "shutting_down", NULL,
                  "the server is shutting down");
    for (int i = 0; i < models->count; i++)
        refuse_all(server, models->items[i], &error, 0);
}

int64_t http_models_wait_ms(const struct http_models *models, const struct http_model *model) {
    int64_t now_ms = clock_now_ms(), most_ms = 0;
    if (!http_models_are_managed(models) || is_open(model))
        return 0;
    for (int i = 0; i < models->count; i++) {
        const struct http_model *other = models->items[i];
        if (other != model && other->state == HTTP_MODEL_AWAKE && !other->is_pinned &&
            other->num_calls > 0)
            most_ms = max_int64(most_ms, models->turn_ms - (now_ms - other->awake_ms));
    }
    return most_ms + model->load_ms;
}

const char *http_models_status(const struct http_model *model) {
    switch (model->state) {
    case HTTP_MODEL_PLANNING:
    case HTTP_MODEL_LOADING:
    case HTTP_MODEL_WAKING:
        return "loading";
    case HTTP_MODEL_AWAKE:
        return engine_get_rest(model->parts.engine).rest == ENGINE_ASLEEP ? "sleeping" : "loaded";
    case HTTP_MODEL_FALLING_ASLEEP:
        return "loaded";
    case HTTP_MODEL_ASLEEP:
        return model->has_weights ? "sleeping" : "unloaded";
    default:
        return "unloaded";
    }
}
