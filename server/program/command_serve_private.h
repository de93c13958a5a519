/* What `quire serve` has, from its start to its end: the command_serve*.c files share it, nobody
 * else includes this. A step of the start fills in its part, command_serve.c gives all of it back.
 */
#ifndef QUIRE_SERVER_COMMAND_SERVE_PRIVATE_H
#define QUIRE_SERVER_COMMAND_SERVE_PRIVATE_H

#include "config/options.h"
#include "engine/engine.h"
#include "engine/executor/executor.h"
#include "engine/record/recorder.h"
#include "models/config/model.h"
#include "server/api/call/api_context.h"
#include "server/api/conversation/chat_model.h"
#include "server/program/command_fingerprint.h"
#include "server/program/command_verify.h"
#include "server/http/http_server.h"
#include "server/net/listen_socket.h"
#include "server/telemetry/kv_events/kv_event_publisher.h"
#include "server/program/load_progress.h"
#include "server/program/memory_table.h"
#include "server/telemetry/record_file.h"
#include "server/program/reload.h"
#include "server/program/server_info.h"
#include "server/process/signals.h"
#include "server/program/vocabulary_loader.h"

/* For a start that loads a model, as the service manager is told. */
#define COMMAND_SERVE_LOAD_TIMEOUT_S 600

struct serve {
    int64_t started_ns;
    struct stop_guard guard;
    struct options options;
    struct model *model;
    struct tokenizer *tokenizer;
    struct vocabulary_loader vocabulary;
    struct command_verify verify;
    struct chat_model *chat;
    struct transport *transport; /* to the other ranks; NULL: they are threads, if there are any */
    struct executor *executor;
    struct executor_config executor_config;
    struct load_progress load_progress;
    struct executor_info info; /* of the executor; its limits are everyone's */
    int wake_fd;
    struct listen_socket socket;
    struct listen_socket admin;
    struct drafter *drafter;         /* NULL: nothing is drafted */
    struct record_file *record_file; /* NULL: nothing is recorded */
    struct recorder *recorder;       /* likewise */
    struct engine *engine;
    struct memory_table memory;
    struct api_keys *keys;
    struct reload reload;
    struct trace_exporter *traces;
    struct kv_event_config kv_event_config;
    struct kv_event_publisher *kv_events; /* NULL: nothing is published */
    struct tls_credentials *credentials;  /* NULL: plain HTTP */
    char model_name[256];                 /* of one that was given none; "": not known yet */
    char *served_names[OPTIONS_MAX_LIST]; /* of the options, or model_name */
    char fingerprint[FINGERPRINT_BYTES];
    struct response_store *responses; /* NULL: none are kept */
    atomic_uint_fast64_t num_seeds;   /* of requests that bring none */
    struct api_context context;
    struct server_info server_info;
    struct http_origin_rules origins;
    struct http_server *http;
};

/* Steps of `quire serve`'s start: the model, and what of it the server needs before or beside the
 * engine. Each returns -1 with err. */
/* A name of the hub becomes the path of what lies in the cache. */
int command_serve_model_find(struct serve *serve, struct error *err);
/* Also reads the options of the executor, which the model decides about. */
int command_serve_model_open(struct serve *serve, struct error *err);
/* The model's own template that cannot be used is no reason not to serve completions; one that was
 * requested is. */
int command_serve_model_open_chat(struct serve *serve, struct error *err);
/* The tokens are prepared for grammars, by a thread of their own, while weights load. */
int command_serve_model_start_vocabulary(struct serve *serve, struct error *err);
int command_serve_model_await_vocabulary(struct serve *serve, struct error *err);
/* With --verify-weights the file is compared with its checksums, likewise. */
int command_serve_model_start_verify(struct serve *serve, struct error *err);
int command_serve_model_await_verify(struct serve *serve, struct error *err);

/* Steps of `quire serve`'s start: the ranks, the engine on top of them, and what it writes to
 * beside its streams. Each returns -1 with err. */
/* Of several processes that compute one model only rank 0 returns: the others compute what it says,
 * and leave the program. */
int command_serve_engine_open_ranks(struct serve *serve, struct error *err);
/* Loads the weights, and allocates all that the device has. */
int command_serve_engine_open_executor(struct serve *serve, struct error *err);
/* --kv-events: checks the options; opens the publisher, which needs the size of a block. */
int command_serve_engine_read_kv_events(struct serve *serve, struct error *err);
int command_serve_engine_open_kv_events(struct serve *serve, struct error *err);
/* With the drafter, and with the recording where there is one. */
int command_serve_engine_start(struct serve *serve, struct error *err);
/* One token goes through it. */
int command_serve_engine_test(struct serve *serve, struct error *err);

/* Steps of `quire serve`'s start: what stands between clients and the engine. Each returns -1 with
 * err. */
/* --root-path too. */
int command_serve_http_read_origins(struct serve *serve, struct error *err);
int command_serve_http_open_keys(struct serve *serve, struct error *err);
/* The access log, and the collector of traces. */
int command_serve_http_open_logs(struct serve *serve, struct error *err);
int command_serve_http_open_tls(struct serve *serve, struct error *err);
int command_serve_http_open_responses(struct serve *serve, struct error *err);
/* Takes the socket that the service manager has passed, if it has; else opens one: clients can wait
 * in its backlog from then on. */
int command_serve_http_open_socket(struct serve *serve, struct error *err);
/* Whoever may write to it commands the server: its user alone. */
int command_serve_http_open_admin_socket(struct serve *serve, struct error *err);
/* What the endpoints know; once the executor's sizes are known. */
void command_serve_http_set_context(struct serve *serve);
/* Completes what /server_info says and the table of memory; serves once it runs. */
int command_serve_http_start(struct serve *serve, struct error *err);

#endif
