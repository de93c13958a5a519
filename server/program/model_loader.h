/* The models of a server that has several: loads, plans and closes them on a thread of its own, for
 * http_models.h, which decides when. The thread lives as long as the rank processes that it starts
 * (process_executor.h). */
#ifndef QUIRE_SERVER_PROGRAM_MODEL_LOADER_H
#define QUIRE_SERVER_PROGRAM_MODEL_LOADER_H

#include "config/model_options.h"
#include "server/http/http_models.h"
#include "server/program/served_model.h"

#include <pthread.h>

struct http_server;

struct model_loader {
    struct served_model *models[HTTP_MAX_MODELS]; /* all that are served, or being closed */
    int count;
    size_t memory_bytes; /* of all models */
    size_t share_bytes;  /* for a model whose KV cache is not given a size */
    struct step_turns *turns;
    int fd;
    pthread_t thread;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t changed;
    bool has_thread, ends;
    struct served_model *model; /* of the job; NULL: none */
    enum http_model_job job;
    bool is_done;
    struct error error;
    atomic_bool gives_up;
};

/* memory_bytes: 0: most of what is available. num_shares: how many models that do not say how large
 * their KV cache is are to fit together. Starts the thread. On failure returns -1 with err; the
 * loader must still be finished. */
int model_loader_start(struct model_loader *loader, size_t memory_bytes, int num_shares,
                       struct error *err);
/* Makes a model of the options, which it takes over: the list's are zeroed. NULL with err. */
struct served_model *model_loader_add(struct model_loader *loader, struct model_options *options,
                                      struct response_store *responses, struct error *err);
/* Downloads what its options name in a hub, so that no request waits for that, and reads the names
 * of its adapters. Before its first job. */
int model_loader_find(struct served_model *served, struct error *err);
/* Returns the operations for http_models.h. */
struct http_model_loader model_loader_ops(struct model_loader *loader);
/* Plans and loads a model on the loader's thread, and waits for it: at the start. */
int model_loader_load(struct model_loader *loader, struct served_model *served, struct error *err);
/* Has the job that runs, if any, end early, and waits for it. Then the models may be closed.
 * Accepts a loader that was not started, or zeroed. */
void model_loader_stop(struct model_loader *loader);
/* Serves the models of the list from now on, whose options it takes over: those that are new or
 * have other options, instead of those that are not in it any more. The first is the default one.
 */
int model_loader_reload(struct model_loader *loader, struct model_list *list,
                        struct response_store *responses, struct http_server *http,
                        struct error *err);
/* Ends the thread, once all models were closed, and frees them. */
void model_loader_finish(struct model_loader *loader);

#endif
