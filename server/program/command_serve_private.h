/* The state of `quire serve`, from its start to its end, private to command_serve*.c. Each step of
 * the start fills in its part; command_serve.c releases everything.
 */
#ifndef QUIRE_SERVER_PROGRAM_COMMAND_SERVE_PRIVATE_H
#define QUIRE_SERVER_PROGRAM_COMMAND_SERVE_PRIVATE_H

#include "config/options.h"
#include "engine/engine.h"
#include "engine/executor/executor.h"
#include "engine/record/recorder.h"
#include "models/config/model.h"
#include "server/api/call/api_context.h"
#include "server/api/conversation/chat_model.h"
#include "server/api/scores/score_model.h"
#include "server/program/command_fingerprint.h"
#include "server/program/command_verify.h"
#include "server/program/draft_model.h"
#include "server/http/http_server.h"
#include "server/net/listen_socket.h"
#include "server/telemetry/kv_events/kv_event_publisher.h"
#include "server/program/load_progress.h"
#include "server/program/adapter_loader.h"
#include "server/program/memory_table.h"
#include "server/telemetry/record_file.h"
#include "server/program/reload.h"
#include "server/program/server_info.h"
#include "server/process/signals.h"
#include "server/program/vocabulary_loader.h"

/* Time for a start that loads a model, as reported to the service manager. */
#define COMMAND_SERVE_LOAD_TIMEOUT_S 600

struct serve {
    int64_t started_ns;
    struct stop_guard guard;
    struct options options;
    struct model *model;
    struct draft_model draft;
    struct tokenizer *tokenizer;
    struct vocabulary_loader vocabulary;
    struct command_verify verify;
    struct command_verify draft_verify; /* of the draft model's files */
    char *given_template;               /* of --chat-template, until the model has it; NULL: none */
    struct chat_model *chat;
    struct score_model *scores;  /* NULL: the model does not classify */
    struct transport *transport; /* to the other ranks; NULL: they are threads, or there are none */
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
    struct adapter_loader adapters;
    struct memory_table memory;
    struct api_keys *keys;
    struct reload reload;
    struct trace_exporter *traces;
    struct kv_event_publisher *kv_events; /* NULL: nothing is published */
    struct tls_credentials *credentials;  /* NULL: plain HTTP */
    char model_name[256]; /* name of a model without a given one; "": not known yet */
    char *served_names[OPTIONS_MAX_LIST]; /* of the options, or model_name */
    char fingerprint[FINGERPRINT_BYTES];
    struct response_store *responses; /* NULL: none are kept */
    atomic_uint_fast64_t num_seeds;   /* of requests that bring none */
    struct api_context context;
    struct server_info server_info;
    struct http_origin_rules origins;
    struct http_server *http;
};

/* Steps of the start of `quire serve`: the model, and what the server needs of it apart from the
 * engine. Each returns -1 with err. */
/* Checks --speculative-config and reads the file of --chat-template, which must be usable. */
int command_serve_model_read_options(struct serve *serve, struct error *err);
/* Replaces the names of hub models by their paths in the cache. */
int command_serve_model_find(struct serve *serve, struct error *err);
/* Opens it and the draft model without their tokenizers. Also reads the executor's options, which
 * depend on the models. */
int command_serve_model_open(struct serve *serve, struct error *err);
/* Also checks that the draft model has the same tokens. */
int command_serve_model_open_tokenizer(struct serve *serve, struct error *err);
/* Makes a classifier of the tokens of --classifier-from-token, and finds the template of pairs of
 * texts if the model is a classifier. */
int command_serve_model_open_scores(struct serve *serve, struct error *err);
/* If the model's own template cannot be used, completions are still served. */
int command_serve_model_open_chat(struct serve *serve, struct error *err);
/* Prepares the tokens for grammars on another thread while the weights load. */
int command_serve_model_start_vocabulary(struct serve *serve, struct error *err);
int command_serve_model_await_vocabulary(struct serve *serve, struct error *err);
/* With --verify-weights, compares the files with their checksums, also on another thread. */
int command_serve_model_start_verify(struct serve *serve, struct error *err);
int command_serve_model_await_verify(struct serve *serve, struct error *err);

/* Logs what a user needs to know, once everything runs: a start that fails has only its error. */
void command_serve_log_start(struct serve *serve);

/* Steps of the start of `quire serve`: the ranks, the engine, and what it writes to besides its
 * streams. Each returns -1 with err. */
/* Among several processes that compute one model, only rank 0 returns: the others compute what it
 * requests, and end the program. */
int command_serve_engine_open_ranks(struct serve *serve, struct error *err);
/* Plans the memory on the CPU, so that what does not fit is refused before the tokenizer is read,
 * which takes longer than all of that. A GPU is left to the process of the ranks. */
int command_serve_engine_plan(struct serve *serve, struct error *err);
/* Loads the weights, and allocates all of the device's memory. */
int command_serve_engine_open_executor(struct serve *serve, struct error *err);
/* --kv-events. */
int command_serve_engine_open_kv_events(struct serve *serve, struct error *err);
/* --record. */
int command_serve_engine_check_record(struct serve *serve, struct error *err);
/* Starts the engine with the drafter, and with the recording if there is one. */
int command_serve_engine_start(struct serve *serve, struct error *err);
/* --lora-modules. */
int command_serve_engine_load_adapters(struct serve *serve, struct error *err);
/* Computes one token to test the engine. */
int command_serve_engine_test(struct serve *serve, struct error *err);

/* Steps of the start of `quire serve`: everything between clients and the engine. Each returns -1
 * with err. */
/* --root-path too. */
int command_serve_http_read_origins(struct serve *serve, struct error *err);
int command_serve_http_open_keys(struct serve *serve, struct error *err);
/* Opens the access log and the trace exporter. */
int command_serve_http_open_logs(struct serve *serve, struct error *err);
int command_serve_http_open_tls(struct serve *serve, struct error *err);
int command_serve_http_open_responses(struct serve *serve, struct error *err);
/* Sets the number of connections that the limit of open files allows. */
int command_serve_http_fit_files(struct serve *serve, struct error *err);
/* Takes the socket passed by the service manager, if any, otherwise binds one. */
int command_serve_http_open_socket(struct serve *serve, struct error *err);
/* From then on clients can wait in the socket's backlog. */
int command_serve_http_listen(struct serve *serve, struct error *err);
/* Only the server's user may write to it, because that controls the server. */
int command_serve_http_open_admin_socket(struct serve *serve, struct error *err);
/* Sets what the endpoints know. Called once the executor's sizes are known. */
void command_serve_http_set_context(struct serve *serve);
/* Completes the contents of /server_info and the memory table; the server then only has to be
 * run. */
int command_serve_http_start(struct serve *serve, struct error *err);

#endif
