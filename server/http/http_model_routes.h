/* What clients see of the models, and what administrators do with them: /v1/models, llama.cpp's
 * /models/load, /models/unload and /models/sse, and the model that a GET means. I/O thread only. */
#ifndef QUIRE_SERVER_HTTP_HTTP_MODEL_ROUTES_H
#define QUIRE_SERVER_HTTP_HTTP_MODEL_ROUTES_H

#include "server/http/http_state.h"

enum http_models_format {
    HTTP_MODELS_OPENAI,
    HTTP_MODELS_ANTHROPIC,
    HTTP_MODELS_OLLAMA,
    HTTP_MODELS_OLLAMA_LOADED, /* only those that are loaded */
};

/* Appends the list of the models that the exchange's key may use. */
void http_model_routes_list(struct connection *connection, enum http_models_format format);
/* Appends the model of that name. -1 with a 404 if there is none. */
int http_model_routes_get(struct connection *connection, const char *name, bool is_anthropic);

/* Returns the model of ?model=NAME, or the default one. NULL with exchange.error if there is none,
 * or if it is not loaded. */
struct http_model *http_model_routes_find_loaded(struct connection *connection);
/* Returns the default model or, if that is not loaded, another one that is; NULL: none is. */
struct http_model *http_model_routes_any_loaded(const struct http_server *server);
/* Fills *err, and returns -1. */
int http_model_routes_refuse_unloaded(const struct http_model *model, struct api_error *err);

/* For the routes of these names: answers about the model that the body named. */
int http_model_routes_load(struct connection *connection, struct http_model *model);
int http_model_routes_unload(struct connection *connection, struct http_model *model);
/* /models/sse: a stream of what becomes of the models, from now on. */
int http_model_routes_follow(struct connection *connection);
/* Tells those that follow: the model's state or, while it is loaded, the progress has changed. */
void http_model_routes_announce(struct http_server *server, const struct http_model *model);

#endif
