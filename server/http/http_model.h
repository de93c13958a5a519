/* A model as the front end serves it: its names, what it takes of the memory, and, once it has been
 * loaded, its engine and what the API knows of it. Its owner (program/) fills it in; apart from
 * load_progress, the I/O thread alone reads and changes it. */
#ifndef QUIRE_SERVER_HTTP_HTTP_MODEL_H
#define QUIRE_SERVER_HTTP_HTTP_MODEL_H

#include "engine/engine.h"
#include "server/api/call/api_context.h"
#include "server/http/engine_monitor.h"
#include "server/telemetry/metrics/metrics.h"
#include "server/telemetry/traffic_log.h"

struct http_task;

enum http_model_state {
    HTTP_MODEL_UNLOADED,
    HTTP_MODEL_PLANNING, /* its files are opened, to know what it takes */
    HTTP_MODEL_LOADING,
    HTTP_MODEL_AWAKE,
    HTTP_MODEL_FALLING_ASLEEP, /* to make room for others, or because somebody wants it */
    HTTP_MODEL_ASLEEP,
    HTTP_MODEL_WAKING,
    HTTP_MODEL_CLOSING, /* all of it is given back: it failed, or is not served any more */
};

/* What a model takes of the host's memory. */
struct http_model_memory {
    size_t bytes;      /* awake, at most */
    size_t rank_bytes; /* of these: given back when it sleeps without weights */
    size_t kv_bytes;   /* of these: given back when it sleeps with its weights */
    double gpu_share;  /* of a GPU's memory, awake; 0: it needs no GPU */
};

/* What is known of a model while it is loaded. Everything that it points to lives until the model
 * is closed. */
struct http_model_parts {
    struct engine *engine; /* NULL: the model is not loaded */
    const struct api_context *context;
    int wake_fd; /* eventfd that the engine's wake callback writes; owned by the owner */
    struct metrics_facts metrics_facts;
    /* The executor (process_executor.h) whose ranks live in a process of their own, or NULL. */
    const struct executor *rank_process;
    struct kv_event_publisher *kv_events; /* NULL: none */
    struct kv_store *kv_store;            /* NULL: none */
    /* Appends the answer to /server_info, one JSON object. */
    void (*write_info)(void *context, struct byte_buffer *out);
    void *info_context;
};

struct http_model {
    /* Set by the owner, and unchanged afterwards. */
    char *const *names; /* served names, the first is reported; at least one */
    int num_names;
    char *const *adapter_names; /* of adapters that are loaded with it */
    int num_adapter_names;
    bool takes_any_name;
    bool is_pinned;  /* never put to sleep for another one */
    int64_t created; /* Unix seconds */
    void *owner;     /* for its owner */

    /* Set by the loader's `take` when it was planned or loaded. */
    struct http_model_memory memory; /* if is_planned */
    struct http_model_parts parts;
    atomic_int load_progress; /* thousandths of the weights that were read; while LOADING, by the
                                 owner's thread */

    /* The front end's (http_models.c). */
    enum http_model_state state;
    bool is_planned;
    bool has_weights;    /* ASLEEP: it sleeps with them */
    bool is_removed;     /* not served any more: it ends once its calls have */
    bool has_failed;     /* its engine has: it is closed once its calls have ended */
    bool is_wanted;      /* an administrator wants it loaded */
    bool is_unwanted;    /* an administrator wants it unloaded */
    bool is_door_closed; /* AWAKE: new calls wait, as others wait for its place */
    int64_t num_calls;   /* exchanges that were let in and have not ended */
    int64_t used_ms;     /* when the last one was let in or ended */
    int64_t awake_ms;    /* since when it is awake */
    int64_t slept_ms;    /* when it was last put to sleep; 0: never */
    bool is_contested;   /* it was brought back soon after that */
    int64_t keeps_ms;    /* if so: it keeps its place until then, though it has no calls */
    int64_t load_ms;     /* what its last start or wake took; 0: not known */
    int64_t moved_ms;    /* when its state changed */
    int64_t wanted_ms;   /* if is_wanted: since when */
    int64_t retry_ms;    /* after a failure: not tried again before */
    char failure[128];   /* of its last start, without paths; "": none */
    uint64_t num_loads, num_sleeps, num_waits;      /* for /metrics */
    struct http_task *first_waiting, *last_waiting; /* bodies that wait until it is awake */
    struct engine_monitor monitor;
    struct traffic_log traffic;
    struct byte_buffer tokenizer_info; /* an answer that never changes */
};

/* Returns whether it is loaded, asleep or not: its engine and context are there. While LOADING, the
 * parts are its owner's. */
static inline bool http_model_is_loaded(const struct http_model *model) {
    return model->state != HTTP_MODEL_LOADING && model->parts.engine != NULL;
}

#endif
