#include "server/http/http_model_routes.h"

#include "config/json/json_write.h"
#include "server/http/http_connection.h"
#include "server/http/http_routes.h"

#include <stdio.h>

/* --- Lists --- */

/* Returns the model as the exchange's key sees it. */
static const struct api_context *view(const struct connection *connection,
                                      const struct http_model *model, struct key_models *models) {
    const bool is_managed = http_models_are_managed(&connection->server->models);
    struct api_context context = {.created = model->created,
                                  .tenant = -1,
                                  .model_names = model->names,
                                  .num_model_names = model->num_names};
    if (http_model_is_loaded(model))
        context = *model->parts.context;
    context.status = is_managed ? http_models_status(model) : NULL;
    const struct api_context *seen = key_models_context(connection->exchange.key, &context, models);
    if (seen == &context)
        models->context = context;
    return &models->context;
}

void http_model_routes_list(struct connection *connection, enum http_models_format format) {
    const struct http_models *models = &connection->server->models;
    struct byte_buffer *out = &connection->exchange.out;
    struct key_models views[HTTP_MAX_MODELS];
    const struct api_context *contexts[HTTP_MAX_MODELS];
    int count = 0;
    for (int i = 0; i < models->count; i++)
        if (!models->items[i]->is_removed) {
            contexts[count] = view(connection, models->items[i], &views[count]);
            count++;
        }
    if (format == HTTP_MODELS_OLLAMA || format == HTTP_MODELS_OLLAMA_LOADED)
        ollama_models_list(contexts, count, format == HTTP_MODELS_OLLAMA_LOADED, out);
    else
        models_endpoint_list(contexts, count, format == HTTP_MODELS_ANTHROPIC, out);
}

int http_model_routes_get(struct connection *connection, const char *name, bool is_anthropic) {
    struct exchange *exchange = &connection->exchange;
    struct http_model *model;
    struct key_models models;
    if (http_models_find(&connection->server->models, exchange->key, name, &model,
                         &exchange->error) != 0)
        return -1;
    return models_endpoint_get(view(connection, model, &models), name, is_anthropic, &exchange->out,
                               &exchange->error);
}

/* --- The model of a GET --- */

int http_model_routes_refuse_unloaded(const struct http_model *model, struct api_error *err) {
    return api_error_set(err, 409, "invalid_request_error", "model_not_loaded", "model",
                         "the model \"%.64s\" has not been loaded yet", model->names[0]);
}

struct http_model *http_model_routes_find_loaded(struct connection *connection) {
    struct exchange *exchange = &connection->exchange;
    const char *name = MHD_lookup_connection_value(connection->mhd, MHD_GET_ARGUMENT_KIND, "model");
    struct http_models *models = &connection->server->models;
    struct http_model *model = models->items[0];
    bool is_only = name == NULL && !http_models_are_managed(models); /* whoever may use it */
    if (!is_only && http_models_find(models, exchange->key, name, &model, &exchange->error) != 0)
        return NULL;
    if (http_model_is_loaded(model))
        return model;
    http_model_routes_refuse_unloaded(model, &exchange->error);
    return NULL;
}

struct http_model *http_model_routes_any_loaded(const struct http_server *server) {
    for (int i = 0; i < server->models.count; i++)
        if (http_model_is_loaded(server->models.items[i]))
            return server->models.items[i];
    return NULL;
}

/* --- Administrators --- */

static int refuse(struct connection *connection, const struct http_model *model, const char *what) {
    return bad_request(&connection->exchange.error, "conflicting_state", "model",
                       "the model \"%.64s\" %s", model->names[0], what);
}

static int succeed(struct connection *connection) {
    struct byte_buffer *out = &connection->exchange.out;
    json_write_begin_object(out);
    json_write_raw_member(out, "success", "true");
    json_write_end_object(out);
    return 0;
}

int http_model_routes_load(struct connection *connection, struct http_model *model) {
    if (!http_models_are_managed(&connection->server->models) ||
        (model->state == HTTP_MODEL_AWAKE && !model->is_unwanted))
        return refuse(connection, model, "is loaded already");
    http_models_want(connection->server, model);
    return succeed(connection);
}

int http_model_routes_unload(struct connection *connection, struct http_model *model) {
    if (!http_models_are_managed(&connection->server->models))
        return refuse(connection, model, "is the only one: POST /sleep?level=2 unloads it");
    if (!http_models_unload(connection->server, model))
        return refuse(connection, model, "is not loaded");
    return succeed(connection);
}

/* --- Events --- */

static void write_event(const struct http_model *model, struct byte_buffer *out) {
    const char *status = http_models_status(model);
    byte_buffer_append_text(out, "data: ");
    json_write_begin_object(out);
    json_write_text_member(out, "model", model->names[0]);
    json_write_text_member(out, "event", "status_change");
    json_write_key(out, "data");
    json_write_begin_object(out);
    json_write_text_member(out, "status", status);
    if (model->state == HTTP_MODEL_LOADING) {
        json_write_key(out, "progress");
        json_write_begin_object(out);
        json_write_raw_member(out, "stages", "[\"text_model\"]");
        json_write_text_member(out, "current", "text_model");
        json_write_key(out, "value");
        json_write_float(out, (float)atomic_load(&model->load_progress) / 1000);
        json_write_end_object(out);
    }
    if (model->state == HTTP_MODEL_UNLOADED && model->failure[0] != '\0') {
        json_write_raw_member(out, "failed", "true");
        json_write_text_member(out, "message", model->failure);
    }
    json_write_end_object(out);
    json_write_end_object(out);
    byte_buffer_append_text(out, "\n\n");
}

int http_model_routes_follow(struct connection *connection) {
    const struct http_models *models = &connection->server->models;
    struct exchange *exchange = &connection->exchange;
    exchange->is_event_stream = true;
    exchange->follows_models = true;
    for (int i = 0; i < models->count; i++)
        if (http_models_allow(exchange->key, models->items[i]))
            write_event(models->items[i], &exchange->out);
    return 0;
}

void http_model_routes_announce(struct http_server *server, const struct http_model *model) {
    for (struct connection *c = server->connections; c != NULL; c = c->next) {
        struct exchange *exchange = &c->exchange;
        if (!exchange->follows_models || !http_models_allow(exchange->key, model))
            continue;
        if (exchange_pending(exchange) > OUTPUT_LIMIT_BYTES) { /* nobody reads them */
            http_connection_give_up(c);
            continue;
        }
        write_event(model, &exchange->out);
        http_connection_wake(c);
    }
}
