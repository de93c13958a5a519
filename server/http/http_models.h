/* The models of the server: which one a request goes to, which of them are in memory, and who waits
 * for which.
 *
 * A request for a model that is not awake waits here with its body, uncomputed. The model whose
 * request has waited longest is next. If it does not fit the memory next to those that are awake,
 * others are put to sleep: those without calls in flight first, least recently used first, with
 * their weights if that is enough. If all have calls, the one that has been awake for longest and
 * at least for a turn closes its door: what comes for it waits, and it sleeps once its calls have
 * ended. So two models that do not fit together take turns; one that is brought back soon after it
 * was put to sleep also keeps its place for a tenth of a turn after each call. One is loaded, woken
 * or put to sleep at a time, on other threads. A pinned one stays.
 *
 * I/O thread only. */
#ifndef QUIRE_SERVER_HTTP_HTTP_MODELS_H
#define QUIRE_SERVER_HTTP_HTTP_MODELS_H

#include "config/base/error.h"
#include "server/http/http_model.h"
#include "server/keys/api_keys.h"

#define HTTP_MAX_MODELS 64

struct http_server;

enum http_model_job {
    HTTP_MODEL_PLAN,  /* `take` fills in its memory */
    HTTP_MODEL_LOAD,  /* `take` fills in its parts; if it fails, nothing of PLAN is left either */
    HTTP_MODEL_CLOSE, /* gives back all that both made; the parts were zeroed before */
};

/* Who loads models, one at a time, on a thread of its own. */
struct http_model_loader {
    int fd; /* eventfd: readable when a job has ended */
    void (*start)(void *context, struct http_model *model, enum http_model_job job);
    /* Returns false while the job runs; else its error, with ERROR_NONE for none. */
    bool (*take)(void *context, struct error *err);
    /* Frees a removed model, which was closed. */
    void (*free)(void *context, struct http_model *model);
    void *context;
};

/* What the rest of the front end does for the models. */
struct http_models_front {
    /* Has a body parsed that was let in. Returns -1 when memory is short. */
    int (*parse)(struct http_task *task);
    /* Answers and destroys a body that was not; its client may be gone. */
    void (*refuse)(struct http_task *task, const struct api_error *error, int64_t retry_ms);
    /* Takes the events of the model's engine, or takes them no more. -1: the system refuses. */
    int (*watch)(struct http_server *server, struct http_model *model);
    void (*unwatch)(struct http_server *server, struct http_model *model);
    /* The model's state has changed. */
    void (*changed)(struct http_server *server, const struct http_model *model);
};

struct http_models {
    struct http_model *items[HTTP_MAX_MODELS]; /* the first is the default */
    int count;
    /* Set at the start. */
    struct http_models_front front;
    struct http_model_loader loader; /* start NULL: the only model is loaded, and stays */
    size_t memory_bytes;             /* of all models together */
    double gpu_share;                /* likewise */
    int max_awake;                   /* 0: any number */
    int64_t turn_ms;

    struct http_model *moving; /* the one that is being planned, loaded, ...; NULL: none */
    enum http_model_job job;   /* of the loader, if it is that */
    bool is_ended;             /* nothing is loaded any more */
    bool is_due;               /* http_models_advance may continue */
};

/* Returns whether models are loaded and put to sleep here. */
static inline bool http_models_are_managed(const struct http_models *models) {
    return models->loader.start != NULL;
}

/* Returns the model of that name, which may be an adapter's; NULL stands for the default one. -1
 * and *err, 404, if there is none, or none that the key may use. */
int http_models_find(const struct http_models *models, const struct api_key *key, const char *name,
                     struct http_model **out, struct api_error *err);
/* Return whether the key may use any model, or this one or one of its adapters. */
bool http_models_any(const struct http_models *models, const struct api_key *key);
bool http_models_allow(const struct api_key *key, const struct http_model *model);

/* Lets the body in, or has it wait until the model is awake; the task's connection is there. -1
 * when memory is short; the task stays the caller's then. */
int http_models_enter(struct http_server *server, struct http_task *task);
/* An exchange that was let in has ended. */
void http_models_leave(struct http_server *server, struct http_model *model);

/* Continues what can continue: called when a job or a sleep has ended, and now and then. */
void http_models_advance(struct http_server *server);
/* An administrator wants it loaded. */
void http_models_want(struct http_server *server, struct http_model *model);
/* An administrator wants it unloaded: it sleeps without weights once its calls have ended. Returns
 * false while it is not awake or asleep. */
bool http_models_unload(struct http_server *server, struct http_model *model);

/* Serves it no more: calls in flight end as they would, those that wait are refused. */
void http_models_remove(struct http_server *server, struct http_model *model);
/* Loads nothing more, and refuses all that wait: the server stops. */
void http_models_end(struct http_server *server);

/* Returns the memory of all models as they are now, at most. */
size_t http_models_used_bytes(const struct http_models *models);
/* Returns how long a request that is refused now would have waited for the model; 0: not at all. */
int64_t http_models_wait_ms(const struct http_models *models, const struct http_model *model);
/* Returns its state in llama.cpp's words: unloaded, loading, loaded, sleeping. */
const char *http_models_status(const struct http_model *model);

#endif
