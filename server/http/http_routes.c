#include "server/http/http_routes.h"

#include "config/base/clock.h"
#include "config/base/log.h"
#include "server/api/call/api_context.h"
#include "server/api/messages/messages_error.h"
#include "server/api/ollama/ollama_format.h"
#include "server/api/responses/response_store.h"
#include "server/http/http_background.h"
#include "server/http/http_connection.h"
#include "server/http/http_control.h"
#include "server/http/http_metrics.h"
#include "server/http/http_model_routes.h"
#include "config/json/json_write.h"
#include "server/keys/api_keys.h"
#include "server/page/openapi.h"
#include "server/page/page.h"

#include <stdio.h>
#include <string.h>

#define VERSION "/v1"
#define JSON_TYPE "application/json"
#define SSE_TYPE "text/event-stream; charset=utf-8"
#define METRICS_TYPE "text/plain; version=0.0.4; charset=utf-8"

static void write_word(const char *name, const char *word, struct byte_buffer *out) {
    json_write_begin_object(out);
    json_write_text_member(out, name, word);
    json_write_end_object(out);
}

static int answer_version(struct connection *connection) {
    write_word("version", QUIRE_VERSION, &connection->exchange.out);
    return 0;
}

/* It has limits of the model: of the default one or, if that is not loaded, of any. */
static int answer_openapi(struct connection *connection) {
    struct http_server *server = connection->server;
    const struct byte_buffer *openapi = &server->openapi;
    const struct http_model *model = http_model_routes_any_loaded(server);
    if (openapi->length == 0 && model == NULL)
        return http_model_routes_refuse_unloaded(server->models.items[0],
                                                 &connection->exchange.error);
    if (openapi->length == 0 && openapi_write(model->parts.context, &server->openapi) != 0) {
        byte_buffer_finish(&server->openapi);
        return api_error_set_memory(&connection->exchange.error);
    }
    connection->exchange.constant = (struct text){openapi->data, openapi->length};
    return 0;
}

/* Returns why this process should be replaced, or NULL. One of several models is loaded anew by
 * itself. */
static const char *find_failure(struct http_server *server) {
    const struct http_models *models = &server->models;
    for (int i = 0; i < models->count; i++) {
        const struct http_model *model = models->items[i];
        if (!http_model_is_loaded(model))
            continue;
        if (!http_models_are_managed(models) && engine_has_failed(model->parts.engine))
            return "the device failed";
        if (!engine_monitor_is_alive(&model->monitor, clock_now_ms()))
            return "the engine has work but makes no progress";
    }
    return server->has_failed ? "the device failed" : NULL;
}

/* Returns why requests should go elsewhere, or NULL. */
static const char *find_trouble(struct http_server *server) {
    const char *failure = find_failure(server);
    if (failure == NULL && server->is_stopping)
        return "the server is shutting down";
    return failure == NULL && http_is_closing(server) ? "the server is being drained" : failure;
}

static int answer_state(struct connection *connection, const char *trouble, const char *code,
                        const char *word) {
    struct exchange *exchange = &connection->exchange;
    if (trouble)
        return api_error_set(&exchange->error, 503, "server_error", code, NULL, "%s", trouble);
    write_word("status", word, &exchange->out);
    return 0;
}

static int answer_live(struct connection *connection) {
    return answer_state(connection, find_failure(connection->server), "unhealthy", "ok");
}

static int answer_health(struct connection *connection) {
    return answer_state(connection, find_trouble(connection->server), "unhealthy", "ok");
}

/* Returns why the engine takes no request at once, or NULL. */
static const char *find_rest(struct engine *engine) {
    struct engine_stats stats;
    engine_get_stats(engine, &stats);
    if (stats.rest != ENGINE_AWAKE && !stats.is_idle_sleep)
        return "the server sleeps";
    if (stats.is_restarting)
        return "the device's process is being started again";
    return engine_queue_is_full(engine) ? "the queue is full" : NULL;
}

/* Several models are loaded as they are asked for. */
static int answer_ready(struct connection *connection) {
    struct http_server *server = connection->server;
    const char *trouble = find_trouble(server);
    if (!trouble && server->num_api_calls >= server->config.max_api_calls)
        trouble = "the queue is full";
    if (!trouble && !http_models_are_managed(&server->models))
        trouble = find_rest(server->models.items[0]->parts.engine);
    return answer_state(connection, trouble, "not_ready", "ready");
}

static int answer_load(struct connection *connection) {
    struct byte_buffer *out = &connection->exchange.out;
    json_write_begin_object(out);
    json_write_int_member(out, "server_load", connection->server->num_api_calls);
    json_write_end_object(out);
    return 0;
}

static const struct http_dialect anthropic;

static int answer_models(struct connection *connection) {
    struct exchange *exchange = &connection->exchange;
    http_model_routes_list(connection, exchange->dialect == &anthropic ? HTTP_MODELS_ANTHROPIC
                                                                       : HTTP_MODELS_OPENAI);
    return 0;
}

/* The name ends the path, except for a slash after it. */
static int answer_model(struct connection *connection) {
    struct exchange *exchange = &connection->exchange;
    struct text argument = exchange->argument;
    char name[256];
    bool has_slash = argument.data[argument.length - 1] == '/';
    snprintf(name, sizeof(name), "%.*s", (int)(argument.length - has_slash), argument.data);
    return http_model_routes_get(connection, name, exchange->dialect == &anthropic);
}

static const char *query_of(const struct connection *connection, const char *name) {
    return MHD_lookup_connection_value(connection->mhd, MHD_GET_ARGUMENT_KIND, name);
}

/* Returns what is needed of responses that are kept: they are not those of a model. */
static struct api_context kept_responses(const struct connection *connection) {
    const struct api_key *key = connection->exchange.key;
    return (struct api_context){.responses = connection->server->config.responses,
                                .tenant = key != NULL ? key->tenant : -1};
}

/* Returns the response that the path names while it is computed, or NULL. */
static struct connection *background_of(const struct connection *connection) {
    return http_background_find(connection->server, kept_responses(connection).tenant,
                                connection->exchange.argument);
}

static int answer_response_stream(struct connection *connection, struct connection *background,
                                  int64_t after) {
    struct exchange *exchange = &connection->exchange;
    const struct api_context context = kept_responses(connection);
    if (background == NULL) {
        exchange->is_event_stream = true;
        return responses_stored_events(&context, exchange->argument, after, &exchange->kept,
                                       &exchange->error);
    }
    const struct byte_buffer *events = &background->exchange.out;
    size_t at = 0;
    if (!api_call_is_stream(background->exchange.call))
        return responses_stored_refuse_stream(&exchange->error);
    if (responses_stored_find_event((struct text){events->data, events->length}, after, &at,
                                    &exchange->error) != 0)
        return -1;
    http_background_follow(connection, background, at);
    return 0;
}

/* GET and DELETE: what is computed is there as far as it is known, or ends. */
static int answer_response(struct connection *connection) {
    struct exchange *exchange = &connection->exchange;
    struct connection *background = background_of(connection);
    const struct api_context context = kept_responses(connection);
    if (strcmp(exchange->method, "DELETE") == 0) {
        if (background != NULL)
            http_background_cancel(background, NULL);
        return responses_stored_delete(&context, exchange->argument, &exchange->out,
                                       &exchange->error);
    }
    bool is_stream = false;
    int64_t after = -1;
    if (responses_stored_read_query(query_of(connection, "stream"),
                                    query_of(connection, "starting_after"), &is_stream, &after,
                                    &exchange->error) != 0)
        return -1;
    if (is_stream)
        return answer_response_stream(connection, background, after);
    if (background == NULL)
        return responses_stored_get(&context, exchange->argument, &exchange->kept,
                                    &exchange->error);
    api_call_write_state(background->exchange.call, &exchange->out);
    return 0;
}

static int answer_response_cancel(struct connection *connection) {
    struct exchange *exchange = &connection->exchange;
    struct connection *background = background_of(connection);
    const struct api_context context = kept_responses(connection);
    if (background == NULL)
        return responses_stored_cancel(&context, exchange->argument, &exchange->kept,
                                       &exchange->error);
    http_background_cancel(background, &exchange->out);
    return 0;
}

static int answer_response_items(struct connection *connection) {
    struct exchange *exchange = &connection->exchange;
    const struct api_context context = kept_responses(connection);
    const struct response_items_query query = {
        .limit = query_of(connection, "limit"),
        .order = query_of(connection, "order"),
        .after = query_of(connection, "after"),
    };
    if (background_of(connection) != NULL)
        return bad_request(&exchange->error, "response_in_progress", NULL,
                           "The items of a response can be listed when it has ended.");
    return responses_stored_items(&context, exchange->argument, &query, &exchange->out,
                                  &exchange->error);
}

static int answer_tokenizer_info(struct connection *connection) {
    const struct http_model *model = http_model_routes_find_loaded(connection);
    if (model == NULL)
        return -1;
    connection->exchange.constant =
        (struct text){model->tokenizer_info.data, model->tokenizer_info.length};
    return 0;
}

static int answer_props(struct connection *connection) {
    struct exchange *exchange = &connection->exchange;
    if (strcmp(exchange->method, "POST") == 0)
        return api_error_set(&exchange->error, 501, "invalid_request_error", "not_supported", NULL,
                             "properties of a running server cannot be changed: start it with "
                             "other options");
    struct engine_stats stats;
    struct key_models models;
    const struct http_model *model = http_model_routes_find_loaded(connection);
    if (model == NULL)
        return -1;
    engine_get_stats(model->parts.engine, &stats);
    models_endpoint_props(key_models_context(exchange->key, model->parts.context, &models),
                          stats.rest != ENGINE_AWAKE, &exchange->out);
    return 0;
}

static int answer_ollama_tags(struct connection *connection) {
    http_model_routes_list(connection, HTTP_MODELS_OLLAMA);
    return 0;
}

static int answer_ollama_ps(struct connection *connection) {
    http_model_routes_list(connection, HTTP_MODELS_OLLAMA_LOADED);
    return 0;
}

/* The version of Ollama whose API this is: programs refuse older ones. */
static int answer_ollama_version(struct connection *connection) {
    write_word("version", OLLAMA_API_VERSION, &connection->exchange.out);
    return 0;
}

static int answer_ollama_management(struct connection *connection) {
    return api_error_set(&connection->exchange.error, 501, "invalid_request_error", "not_supported",
                         NULL,
                         "%s is not supported: this server has the model that it was started with; "
                         "quire pull downloads others",
                         connection->exchange.route->path);
}

/* In llama.cpp's shape: as many slots are processing as sequences run. */
static int answer_slots(struct connection *connection) {
    struct exchange *exchange = &connection->exchange;
    const struct http_model *model = http_model_routes_find_loaded(connection);
    const char *fails = query_of(connection, "fail_on_no_slot");
    struct engine_stats stats;
    if (model == NULL)
        return -1;
    const struct serving_limits *limits = model->parts.context->limits;
    engine_get_stats(model->parts.engine, &stats);
    if (fails != NULL && strcmp(fails, "1") == 0 && stats.num_running >= limits->max_num_seqs)
        return api_error_set(&exchange->error, 503, "server_error", "not_ready", NULL,
                             "no slot is free: %d sequences run", (int)stats.num_running);
    json_write_begin_array(&exchange->out);
    for (int32_t i = 0; i < limits->max_num_seqs; i++) {
        json_write_begin_object(&exchange->out);
        json_write_int_member(&exchange->out, "id", i);
        json_write_int_member(&exchange->out, "n_ctx", limits->max_model_len);
        json_write_key(&exchange->out, "is_processing");
        json_write_bool(&exchange->out, i < stats.num_running);
        json_write_end_object(&exchange->out);
    }
    json_write_end_array(&exchange->out);
    return 0;
}

static const struct header_field text_fields[] = {
    {"Content-Type", "text/plain; charset=utf-8"},
    {"Vary", "Accept, Accept-Encoding"},
    {NULL, NULL},
};

/* The page may be kept, but is validated each time: a new server may bring a new one. */
static const struct header_field page_fields[] = {
    {"Content-Type", "text/html; charset=utf-8"},
    {"Content-Encoding", "gzip"},
    {"Content-Security-Policy", page_chat_policy},
    {"Referrer-Policy", "no-referrer"},
    {"Cache-Control", "no-cache"},
    {"ETag", page_chat_etag},
    {"Vary", "Accept, Accept-Encoding"},
    {NULL, NULL},
};

static bool header_names(const struct connection *connection, const char *field,
                         const char *value) {
    const char *text = MHD_lookup_connection_value(connection->mhd, MHD_HEADER_KIND, field);
    return text && strcasestr(text, value) != NULL;
}

static void write_routes(const struct http_server *server, struct byte_buffer *out) {
    size_t num_routes;
    const struct http_route *list = http_routes_list(&num_routes);
    byte_buffer_append_text(out, "quire\n");
    for (size_t i = 0; i < num_routes; i++)
        if (!list[i].is_admins || server->config.allows_admin)
            byte_buffer_printf(out, "%s %s\n", list[i].methods, list[i].path);
}

/* GET /: browsers request text/html, compressed, and get the chat page; curl and the like accept
 * anything and get a list of the routes. Neither needs a key: they hold nothing of this server's.
 */
static int answer_index(struct connection *connection) {
    struct exchange *exchange = &connection->exchange;
    if (!header_names(connection, "Accept", "text/html") ||
        !header_names(connection, "Accept-Encoding", "gzip")) {
        exchange->fields = text_fields;
        write_routes(connection->server, &exchange->out);
        return 0;
    }
    exchange->fields = page_fields;
    if (header_names(connection, "If-None-Match", page_chat_etag))
        exchange->status = 304;
    else
        exchange->constant = (struct text){(const char *)page_chat, page_chat_bytes};
    return 0;
}

static void format_error(const struct api_error *err, const char *request_id,
                         struct byte_buffer *out) {
    api_error_format(err, out);
}

static const struct http_dialect openai = {
    .format_error = format_error,
    .stream_type = SSE_TYPE,
    .keep_alive = ": keep-alive\n\n",
};

static const struct http_dialect anthropic = {
    .format_error = messages_error_format,
    .request_id_field = "request-id",
    .stream_type = SSE_TYPE,
    .keep_alive = "event: ping\ndata: {\"type\":\"ping\"}\n\n",
};

/* A line must hold an object: a stream that is silent gets white space before its next line. */
static const struct http_dialect ollama = {
    .format_error = ollama_format_error,
    .stream_type = "application/x-ndjson",
    .keep_alive = " ",
};

const struct http_dialect *http_routes_dialect(const struct http_route *route, const char *path,
                                               bool names_version) {
    static const char messages[] = "/v1/messages/", api[] = "/api/";
    bool is_both =
        route != NULL && (route->answer == answer_models || route->answer == answer_model);
    if (route == NULL &&
        (strncmp(path, messages, strlen(messages)) == 0 ||
         strncmp(path, messages + strlen(VERSION), strlen(messages + strlen(VERSION))) == 0))
        return &anthropic;
    if (route == NULL && strncmp(path, api, strlen(api)) == 0)
        return &ollama;
    if (is_both && names_version)
        return &anthropic;
    return route != NULL && route->dialect != NULL ? route->dialect : &openai;
}

const struct http_dialect *http_routes_dialect_of(const struct exchange *exchange) {
    return exchange->dialect != NULL ? exchange->dialect : &openai;
}

#define GET "GET, HEAD"
#define GET_OR_DELETE "GET, HEAD, DELETE"
#define POST "POST"
#define GET_OR_POST "GET, HEAD, POST"

static const struct http_route routes[] = {
    {"/completions", .methods = POST, .parse = completion_endpoint_parse_either,
     .content_type = JSON_TYPE},
    {"/v1/completions", .methods = POST, .parse = completion_endpoint_parse,
     .content_type = JSON_TYPE},
    {"/completion", .methods = POST, .parse = completion_endpoint_parse_llama,
     .content_type = JSON_TYPE},
    {"/infill", .methods = POST, .parse = completion_endpoint_parse_infill,
     .content_type = JSON_TYPE},
    {"/v1/responses", .methods = POST, .parse = responses_endpoint_parse,
     .content_type = JSON_TYPE},
    {"/v1/responses/input_tokens", .methods = POST, .transform = responses_input_tokens,
     .content_type = JSON_TYPE},
    {"/v1/responses/{response_id}/cancel", .methods = POST, .answer = answer_response_cancel,
     .content_type = JSON_TYPE},
    {"/v1/responses/{response_id}/input_items", .methods = GET, .answer = answer_response_items,
     .content_type = JSON_TYPE},
    {"/v1/responses/{response_id}", .methods = GET_OR_DELETE, .answer = answer_response,
     .content_type = JSON_TYPE},
    {"/v1/messages", .methods = POST, .parse = messages_endpoint_parse, .content_type = JSON_TYPE,
     .dialect = &anthropic},
    {"/v1/messages/count_tokens", .methods = POST, .transform = messages_count_tokens,
     .content_type = JSON_TYPE, .dialect = &anthropic},
    {"/v1/embeddings", .methods = POST, .parse = embedding_endpoint_parse,
     .content_type = JSON_TYPE},
    {"/v1/score", .methods = POST, .parse = score_endpoint_parse, .content_type = JSON_TYPE},
    {"/classify", .methods = POST, .parse = classify_endpoint_parse, .content_type = JSON_TYPE},
    {"/v1/rerank", .methods = POST, .parse = score_endpoint_parse_rerank,
     .content_type = JSON_TYPE},
    {"/v2/rerank", .methods = POST, .parse = score_endpoint_parse_rerank,
     .content_type = JSON_TYPE},
    {"/v1/chat/completions", .methods = POST, .parse = chat_endpoint_parse,
     .content_type = JSON_TYPE},
    {"/v1/models", .methods = GET, .answer = answer_models, .content_type = JSON_TYPE},
    {"/models/load", .is_admins = true, .methods = POST, .manage = http_model_routes_load,
     .content_type = JSON_TYPE},
    {"/models/unload", .is_admins = true, .methods = POST, .manage = http_model_routes_unload,
     .content_type = JSON_TYPE},
    {"/models/sse", .methods = GET, .answer = http_model_routes_follow, .content_type = SSE_TYPE},
    {"/v1/models/{model}", .methods = GET, .answer = answer_model, .content_type = JSON_TYPE},
    {"/api/chat", .methods = POST, .parse = ollama_endpoint_parse_chat, .content_type = JSON_TYPE,
     .dialect = &ollama},
    {"/api/generate", .methods = POST, .parse = ollama_endpoint_parse_generate,
     .content_type = JSON_TYPE, .dialect = &ollama},
    {"/api/embed", .methods = POST, .parse = ollama_embed_parse, .content_type = JSON_TYPE,
     .dialect = &ollama},
    {"/api/embeddings", .methods = POST, .parse = ollama_embed_parse_old, .content_type = JSON_TYPE,
     .dialect = &ollama},
    {"/api/show", .methods = POST, .transform = ollama_models_show, .content_type = JSON_TYPE,
     .dialect = &ollama},
    {"/api/tags", .methods = GET, .answer = answer_ollama_tags, .content_type = JSON_TYPE,
     .dialect = &ollama},
    {"/api/ps", .methods = GET, .answer = answer_ollama_ps, .content_type = JSON_TYPE,
     .dialect = &ollama},
    {"/api/version", .methods = GET, .answer = answer_ollama_version, .content_type = JSON_TYPE,
     .dialect = &ollama},
    {"/api/pull", .methods = POST, .answer = answer_ollama_management, .content_type = JSON_TYPE,
     .dialect = &ollama},
    {"/api/push", .methods = POST, .answer = answer_ollama_management, .content_type = JSON_TYPE,
     .dialect = &ollama},
    {"/api/create", .methods = POST, .answer = answer_ollama_management, .content_type = JSON_TYPE,
     .dialect = &ollama},
    {"/api/copy", .methods = POST, .answer = answer_ollama_management, .content_type = JSON_TYPE,
     .dialect = &ollama},
    {"/api/delete", .methods = "DELETE", .answer = answer_ollama_management,
     .content_type = JSON_TYPE, .dialect = &ollama},
    {"/api/blobs/{digest}", .methods = "HEAD, POST", .answer = answer_ollama_management,
     .content_type = JSON_TYPE, .dialect = &ollama},
    {"/live", .is_open = true, .methods = GET, .answer = answer_live, .content_type = JSON_TYPE},
    {"/health", .is_open = true, .methods = GET, .answer = answer_health,
     .content_type = JSON_TYPE},
    {"/ready", .is_open = true, .methods = GET, .answer = answer_ready, .content_type = JSON_TYPE},
    {"/ping", .is_open = true, .methods = GET_OR_POST, .answer = answer_health,
     .content_type = JSON_TYPE},
    {"/metrics", .methods = GET, .answer = http_metrics_answer, .content_type = METRICS_TYPE},
    {"/load", .methods = GET, .answer = answer_load, .content_type = JSON_TYPE},
    {"/server_info", .is_admins = true, .methods = GET, .answer = http_control_server_info,
     .content_type = JSON_TYPE},
    {"/reset_prefix_cache", .is_admins = true, .methods = POST, .answer = http_control_reset_cache,
     .content_type = JSON_TYPE},
    {"/sleep", .is_admins = true, .methods = POST, .answer = http_control_sleep,
     .content_type = JSON_TYPE},
    {"/wake_up", .is_admins = true, .methods = POST, .answer = http_control_wake,
     .content_type = JSON_TYPE},
    {"/is_sleeping", .is_admins = true, .methods = GET, .answer = http_control_is_sleeping,
     .content_type = JSON_TYPE},
    {"/v1/load_lora_adapter", .is_admins = true, .methods = POST,
     .transform = adapter_endpoint_load, .content_type = "text/plain; charset=utf-8"},
    {"/v1/unload_lora_adapter", .is_admins = true, .methods = POST,
     .transform = adapter_endpoint_unload, .content_type = "text/plain; charset=utf-8"},
    {"/tokenize", .methods = POST, .transform = tokenize_endpoint_encode,
     .content_type = JSON_TYPE},
    {"/apply-template", .methods = POST, .transform = tokenize_endpoint_apply_template,
     .content_type = JSON_TYPE},
    {"/v1/chat/completions/render", .methods = POST, .transform = render_endpoint_chat,
     .content_type = JSON_TYPE},
    {"/v1/completions/render", .methods = POST, .transform = render_endpoint_completion,
     .content_type = JSON_TYPE},
    {"/detokenize", .methods = POST, .transform = tokenize_endpoint_decode,
     .content_type = JSON_TYPE},
    {"/props", .methods = GET_OR_POST, .answer = answer_props, .content_type = JSON_TYPE},
    {"/slots", .methods = GET, .answer = answer_slots, .content_type = JSON_TYPE},
    {"/slots/{id}", .is_admins = true, .methods = POST, .transform = slots_endpoint_erase,
     .parse = slots_endpoint_parse, .content_type = JSON_TYPE},
    {"/tokenizer_info", .methods = GET, .answer = answer_tokenizer_info, .content_type = JSON_TYPE},
    {"/version", .methods = GET, .answer = answer_version, .content_type = JSON_TYPE},
    {"/openapi.json", .is_open = true, .methods = GET, .answer = answer_openapi,
     .content_type = JSON_TYPE},
    {"/", .is_open = true, .methods = GET, .answer = answer_index},
};

const struct http_route *http_routes_list(size_t *out_count) {
    *out_count = sizeof(routes) / sizeof(routes[0]);
    return routes;
}

const char *http_routes_strip(const char *path, const char *root_path) {
    size_t length = root_path ? strlen(root_path) : 0;
    bool is_below = length > 0 && strncmp(path, root_path, length) == 0 &&
                    (path[length] == '/' || path[length] == '\0');
    if (!is_below)
        return path;
    return path[length] == '\0' ? "/" : path + length;
}

static bool has_version(const char *path) {
    return strncmp(path, VERSION "/", strlen(VERSION "/")) == 0;
}

static bool is_end(const char *path) {
    return path[0] == '\0' || (path[0] == '/' && path[1] == '\0');
}

/* Returns whether the path matches the pattern, except for a slash at its end. */
static bool matches(const char *pattern, const char *path, struct text *out_argument) {
    size_t length = strcspn(pattern, "{");
    *out_argument = (struct text){path, 0};
    if (strncmp(path, pattern, length) != 0)
        return false;
    if (pattern[length] == '\0')
        return is_end(path + length);
    const char *rest = strchr(pattern + length, '}') + 1;
    const char *argument = path + length;
    size_t argument_length = rest[0] == '\0' ? strlen(argument) : strcspn(argument, "/");
    *out_argument = (struct text){argument, argument_length};
    if (argument_length == 0 || strncmp(argument + argument_length, rest, strlen(rest)) != 0)
        return false;
    return is_end(argument + argument_length + strlen(rest));
}

/* Paths under /v1 are found without it too, as llama.cpp and others have it: clients differ in
 * whether their base URL ends in /v1. */
const struct http_route *http_routes_find(const char *path, struct text *out_argument) {
    for (size_t i = 0; i < sizeof(routes) / sizeof(routes[0]); i++) {
        const struct http_route *route = &routes[i];
        bool is_short = has_version(route->path) && !has_version(path);
        if (matches(route->path + (is_short ? strlen(VERSION) : 0), path, out_argument))
            return route;
    }
    return NULL;
}

bool http_routes_has_method(const struct http_route *route, const char *method) {
    size_t length = strlen(method);
    const char *found = strstr(route->methods, method);
    return length > 0 && found && (found == route->methods || found[-1] == ' ') &&
           (found[length] == ',' || found[length] == '\0');
}
