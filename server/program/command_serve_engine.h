/* Steps of `quire serve`'s start: the ranks, the engine on top of them, and what it writes to
 * beside its streams. Each returns -1 with err. */
#ifndef QUIRE_SERVER_COMMAND_SERVE_ENGINE_H
#define QUIRE_SERVER_COMMAND_SERVE_ENGINE_H

#include "server/program/command_serve_state.h"

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

#endif
