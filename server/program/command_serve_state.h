/* What `quire serve` has, from its start to its end: the command_serve*.c files share it, nobody
 * else includes this. A step of the start fills in its part, command_serve.c gives all of it back.
 */
#ifndef QUIRE_SERVER_COMMAND_SERVE_STATE_H
#define QUIRE_SERVER_COMMAND_SERVE_STATE_H

#include "config/options.h"
#include "engine/engine.h"
#include "engine/executor/executor.h"
#include "engine/record/recorder.h"
#include "models/config/model.h"
#include "server/api/call/api_context.h"
#include "server/api/chat/chat_model.h"
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
    struct api_context context;
    struct server_info server_info;
    struct http_origin_rules origins;
    struct http_server *http;
};

#endif
