/* The subcommands of the program. Each takes the arguments behind its name and returns the exit
 * status: 0, EX_USAGE (64), EX_SOFTWARE (70: the device failed), EX_OSERR (71: the system refused,
 * for instance a port in use) EX_CONFIG (78: configuration or model refused)
 * or EX_UNAVAILABLE (69: the server that was asked does not answer). */
#ifndef QUIRE_SERVER_COMMAND_LINE_H
#define QUIRE_SERVER_COMMAND_LINE_H

#include "config/error.h"
#include "models/model.h"
#include "models/tokenizer/tokenizer.h"

#include <stdbool.h>

#define COMMAND_DEFAULT_URL "http://127.0.0.1:8000" /* of a running server */

int command_serve(int argc, char *const *argv);
int command_inspect(int argc, char *const *argv);
int command_key(int argc, char *const *argv);
int command_list(int argc, char *const *argv);
int command_pull(int argc, char *const *argv);   /* and EX_TEMPFAIL (75): interrupted */
int command_replay(int argc, char *const *argv); /* and 1: a step differs */
int command_top(int argc, char *const *argv);
int command_bench(int argc, char *const *argv); /* and 1: a request failed */
int command_chat(int argc, char *const *argv);  /* and 1: no answer; 130: interrupted */
/* Not for people: how process_executor.h starts its process. */
int command_rank(int argc, char *const *argv);

/* Returns whether --help or -h is among the arguments. */
bool command_wants_help(int argc, char *const *argv);

/* Opens the model and its tokenizer; a file that cannot be read is refused (ERROR_MODEL) like one
 * that is broken. */
int command_open_model(const char *path, struct model **out_model, struct tokenizer **out_tokenizer,
                       struct error *err);

/* The exit status that stands for an error. */
int command_exit_status(const struct error *err);

#endif
