/* The subcommands that talk to a running server, or to a hub. Each takes the arguments after its
 * name and returns the exit status, like those in command_line.h. */
#ifndef QUIRE_SERVER_CLIENT_CLIENT_H
#define QUIRE_SERVER_CLIENT_CLIENT_H

#include "config/base/error.h"
#include "server/client/hub/hub.h"

#include <stdbool.h>

#define CLIENT_DEFAULT_URL "http://127.0.0.1:8000" /* of a running server */

int command_pull(int argc, char *const *argv); /* and EX_TEMPFAIL (75): interrupted */
int command_top(int argc, char *const *argv);
int command_bench(int argc, char *const *argv); /* and 1: a request failed */
int command_chat(int argc, char *const *argv);  /* and 1: no answer; 130: interrupted */
int command_run(int argc, char *const *argv);   /* command_chat with a model as its first word */

/* Returns the index of the argument --help or -h; -1: none. */
int client_find_help(int argc, char *const *argv);
static inline bool client_wants_help(int argc, char *const *argv) {
    return client_find_help(argc, argv) >= 0;
}

/* Returns the exit status for an error. */
int client_exit_status(const struct error *err);

/* --- Models of the hub, for the commands that take one: messages go to the log, and SIGINT and
 * SIGTERM stop --- */

/* Returns whether a model's name refers to the hub: no local file has this name, and it is not
 * written as a path. */
bool command_pull_is_reference(const char *model);

/* Resolves the reference, see hub_resolve. Signals are blocked (signals_block). */
int command_pull_model(const struct hub_reference *reference, enum hub_policy policy,
                       struct hub_model *out, struct error *err);

#endif
