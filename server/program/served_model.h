/* A model that `quire serve` serves: its files, what the API needs of them, its ranks and its
 * engine. The steps of its start are functions that each fill in a part; a server of one model runs
 * them between its own, one of several on the thread of model_loader.h. */
#ifndef QUIRE_SERVER_PROGRAM_SERVED_MODEL_H
#define QUIRE_SERVER_PROGRAM_SERVED_MODEL_H

#include "config/options.h"
#include "engine/engine.h"
#include "engine/executor/executor.h"
#include "engine/record/recorder.h"
#include "models/config/model.h"
#include "server/api/call/api_context.h"
#include "server/api/conversation/chat_model.h"
#include "server/api/scores/score_model.h"
#include "server/http/http_model.h"
#include "server/process/signals.h"
#include "server/program/adapter_loader.h"
#include "server/program/command_fingerprint.h"
#include "server/program/command_verify.h"
#include "server/program/draft_model.h"
#include "server/program/load_progress.h"
#include "server/program/memory_table.h"
#include "server/program/server_info.h"
#include "server/program/vocabulary_loader.h"
#include "server/telemetry/kv_events/kv_event_publisher.h"
#include "server/telemetry/record_file.h"

#include <stdatomic.h>

struct transport;

/* Time for a start that loads a model, as reported to the service manager. */
#define SERVED_MODEL_LOAD_TIMEOUT_S 600

struct served_model {
    /* Before the first step; these outlive it. */
    struct options *options;
    _Atomic(const char *) *activity; /* of its engine's thread; NULL: nobody reads it */
    struct transport *transport;     /* to other ranks; NULL: they are threads, or there are none */
    struct response_store *responses; /* NULL: none are kept */
    bool is_one_of_several;           /* its ranks live in a process of their own */
    struct step_turns *turns;         /* in which several compute; NULL: it is alone */
    const atomic_bool *gives_up;      /* once set, a start of its rank process ends; may be NULL */

    struct model *model;
    struct draft_model draft;
    struct tokenizer *tokenizer;
    struct vocabulary_loader vocabulary;
    struct command_verify verify;
    struct command_verify draft_verify; /* of the draft model's files */
    char *given_template;               /* of --chat-template, until the model has it; NULL: none */
    struct chat_model *chat;
    struct score_model *scores; /* NULL: the model does not classify */
    struct executor *executor;
    struct executor_config executor_config;
    struct load_progress load_progress;
    struct executor_info info; /* of the executor; its limits are everyone's */
    int wake_fd;
    struct drafter *drafter;         /* NULL: nothing is drafted */
    struct record_file *record_file; /* NULL: nothing is recorded */
    struct recorder *recorder;       /* likewise */
    struct engine *engine;
    struct adapter_loader adapters;
    struct memory_table memory;
    struct kv_event_publisher *kv_events; /* NULL: nothing is published */
    struct kv_store *kv_store;            /* NULL: none */
    char kv_store_name[KV_STORE_NAME_BYTES];
    char model_name[256]; /* name of a model without a given one; "": not known yet */
    char *served_names[OPTIONS_MAX_LIST]; /* of the options, or model_name */
    char *adapter_names[OPTIONS_MAX_LIST];
    char fingerprint[FINGERPRINT_BYTES];
    atomic_uint_fast64_t num_seeds; /* of requests that bring none */
    struct api_context context;
    struct server_info server_info;
    struct http_model_memory needs; /* of one of several, once it was planned */
    struct http_model_parts parts;  /* once it was loaded */
    /* What the front end sees of it: of its thread, which takes over needs and parts. */
    struct http_model http;
};

typedef int served_model_step(struct served_model *served, struct error *err);

/* Steps of the start. Each returns -1 with err; what was made by then is freed by
 * served_model_close. */
/* Checks --speculative-config and reads the file of --chat-template, which must be usable. */
served_model_step served_model_read_options;
/* --kv-events. */
served_model_step served_model_open_kv_events;
/* --record. */
served_model_step served_model_check_record;
/* Replaces the names of hub models by their paths in the cache. */
served_model_step served_model_find;
/* Opens it and the draft model without their tokenizers. Also reads the executor's options, which
 * depend on the models. */
served_model_step served_model_open;
/* Plans the memory on the CPU, so that what does not fit is refused before the tokenizer is read,
 * which takes longer than all of that. A GPU is left to the process of the ranks. */
served_model_step served_model_plan;
/* Also checks that the draft model has the same tokens. */
served_model_step served_model_open_tokenizer;
/* Makes a classifier of the tokens of --classifier-from-token, and finds the template of pairs of
 * texts if the model is a classifier. */
served_model_step served_model_open_scores;
/* If the model's own template cannot be used, completions are still served. */
served_model_step served_model_open_chat;
/* With --verify-weights, compares the files with their checksums, also on another thread. */
served_model_step served_model_start_verify;
served_model_step served_model_await_verify;
/* Prepares the tokens for grammars on another thread while the weights load. */
served_model_step served_model_start_vocabulary;
served_model_step served_model_await_vocabulary;
/* Loads the weights, and allocates all of the device's memory. */
served_model_step served_model_open_executor;
/* --kv-store: in a folder of the model's name, for what this executor computes. A store that
 * another process uses for something else is a warning, and left alone. */
served_model_step served_model_open_kv_store;
/* Starts the engine with the drafter, and with the recording if there is one. */
served_model_step served_model_start_engine;
/* Computes one token to test the engine. */
served_model_step served_model_test;
/* --lora-modules. */
served_model_step served_model_load_adapters;
/* Fills in parts. */
served_model_step served_model_show;

/* Sets the names that clients use, in http: of the options or, without any, of the model's path. */
void served_model_set_names(struct served_model *served);
/* Sets what the endpoints know. Called once the executor's sizes are known. */
void served_model_set_context(struct served_model *served);
/* Returns whether its ranks live in a process of their own. */
bool served_model_has_rank_process(const struct served_model *served);

/* Returns whether its device hangs. */
bool served_model_hangs(const struct served_model *served);
/* Ends the engine and frees what the steps have made, so that they may begin again. guard: is told
 * what is being done; NULL: nobody is. Returns false when the device hangs: then something of it is
 * left, which keeps whoever gives it back, at exit(3) too. */
bool served_model_close(struct served_model *served, struct stop_guard *guard);

#endif
