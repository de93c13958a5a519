/* Models of the hub, for the commands that take one: messages go to the log, and SIGINT and SIGTERM
 * stop. */
#ifndef QUIRE_SERVER_COMMAND_PULL_H
#define QUIRE_SERVER_COMMAND_PULL_H

#include "server/client/hub/hub.h"

/* Returns whether a model's name is to be looked for on the hub: there is nothing of this name
 * here, and it is not written as a path. */
bool command_pull_is_reference(const char *model);

/* Resolves the reference, see hub_resolve. Signals are blocked (signals_block). */
int command_pull_model(const struct hub_reference *reference, enum hub_policy policy,
                       struct hub_model *out, struct error *err);

#endif
