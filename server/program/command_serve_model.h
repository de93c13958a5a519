/* Steps of `quire serve`'s start: the model, and what of it the server needs before or beside the
 * engine. Each returns -1 with err. */
#ifndef QUIRE_SERVER_COMMAND_SERVE_MODEL_H
#define QUIRE_SERVER_COMMAND_SERVE_MODEL_H

#include "server/program/command_serve_state.h"

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

#endif
