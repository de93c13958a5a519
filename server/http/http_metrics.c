#include "server/http/http_metrics.h"

#include "config/base/log.h"
#include "engine/executor/process_executor.h"
#include "engine/grammar/machine/grammar_cache.h"
#include "server/api/responses/response_store.h"
#include "server/http/http_connection.h"
#include "server/keys/api_keys.h"

#include <stdlib.h>

static void read_loaded(const struct http_model_parts *parts, struct metrics_model *out) {
    out->facts = &parts->metrics_facts;
    engine_get_stats(parts->engine, &out->engine);
    out->has_rank_process = parts->rank_process != NULL;
    if (out->has_rank_process)
        process_stats_read_child(process_executor_pid(parts->rank_process), &out->ranks);
    kv_event_publisher_get_stats(parts->kv_events, &out->kv_events);
    if (parts->kv_store != NULL)
        kv_store_get_counts(parts->kv_store, &out->kv_store);
    if (parts->context->grammars != NULL)
        grammar_cache_stats(parts->context->grammars, &out->grammars);
}

static int64_t count_waiting(const struct http_model *model) {
    int64_t count = 0;
    for (const struct http_task *task = model->first_waiting; task != NULL;
         task = task->next_waiting)
        count++;
    return count;
}

static void read_model(const struct http_model *model, struct metrics_model *out) {
    *out = (struct metrics_model){.name = model->names[0],
                                  .status = http_models_status(model),
                                  .planned_bytes = model->is_planned ? model->memory.bytes : 0,
                                  .load_seconds = (double)model->load_ms / 1e3,
                                  .num_waiting = count_waiting(model),
                                  .num_loads = model->num_loads,
                                  .num_sleeps = model->num_sleeps,
                                  .num_waits = model->num_waits};
    if (http_model_is_loaded(model))
        read_loaded(&model->parts, out);
}

/* Reads those that are served: a further one may have the name of one that is not any more. One of
 * several is hidden from keys that may not use it, as in the list of models. */
static int read_models(const struct connection *connection, struct metrics_model *out) {
    const struct http_models *models = &connection->server->models;
    int count = 0;
    for (int i = 0; i < models->count; i++) {
        const struct http_model *model = models->items[i];
        if (model->is_removed)
            continue;
        read_model(model, &out[count]);
        out[count++].is_hidden =
            http_models_are_managed(models) && !http_models_allow(connection->exchange.key, model);
    }
    return count;
}

static void read_http(struct http_server *server) {
    server->stats.log_lines_lost = log_num_lost();
    server->stats.trace_spans_lost = trace_exporter_num_lost(server->config.traces);
    server->stats.access_log_lines_lost = access_log_num_lost(server->config.access_log);
    server->stats.planned_bytes = server->config.planned_bytes;
    server->stats.held_bytes = server->memory.used_bytes;
    server->stats.responses = response_store_stats(server->config.responses);
}

/* Returns whether names of keys, and what each uses, are for this one. */
static bool sees_keys(const struct connection *connection) {
    const struct http_server *server = connection->server;
    const struct api_key *key = connection->exchange.key;
    return server->config.shows_key_names || (key != NULL && api_keys_is_admin(server->keys, key));
}

int http_metrics_answer(struct connection *connection) {
    struct http_server *server = connection->server;
    const struct http_models *models = &server->models;
    struct metrics_model *read = calloc((size_t)models->count, sizeof(*read));
    if (read == NULL)
        return api_error_set_memory(&connection->exchange.error);
    struct process_stats process;
    process_stats_read(&process);
    read_http(server);
    const struct metrics_server metrics = {.prefix = server->config.metrics_prefix,
                                           .models = read,
                                           .num_models = read_models(connection, read),
                                           .has_several = http_models_are_managed(models),
                                           .memory_bytes = models->memory_bytes,
                                           .used_bytes = http_models_used_bytes(models),
                                           .http = &server->stats,
                                           .process = &process,
                                           .keys = sees_keys(connection) ? server->keys : NULL};
    metrics_format(&metrics, &connection->exchange.out);
    free(read);
    return 0;
}
