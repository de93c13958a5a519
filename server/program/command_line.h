/* The subcommands that know the engine or its files; client.h has those of a client. Each takes the
 * arguments after its name and returns the exit status: 0, EX_USAGE (64), EX_SOFTWARE (70: the
 * device failed), EX_OSERR (71: the system refused, for example a port in use) EX_CONFIG (78:
 * configuration or model refused) or EX_UNAVAILABLE (69: the other server does not answer). */
#ifndef QUIRE_SERVER_PROGRAM_COMMAND_LINE_H
#define QUIRE_SERVER_PROGRAM_COMMAND_LINE_H

#include "models/config/model.h"
#include "models/tokenizer/tokenizer.h"
#include "server/client/client.h"

int command_serve(int argc, char *const *argv);
int command_inspect(int argc, char *const *argv);
int command_key(int argc, char *const *argv);
int command_list(int argc, char *const *argv);
int command_quantize(int argc, char *const *argv); /* and EX_TEMPFAIL (75): interrupted */
int command_replay(int argc, char *const *argv);   /* and 1: a step differs */
/* Internal: process_executor.h starts its process with it. */
int command_rank(int argc, char *const *argv);

/* Opens the model and its tokenizer, or only the model (out_tokenizer NULL); a file that cannot be
 * read is refused (ERROR_MODEL) like a broken one. */
int command_open_model(const char *path, struct model **out_model, struct tokenizer **out_tokenizer,
                       struct error *err);
int command_open_tokenizer(const struct model *model, struct tokenizer **out, struct error *err);

#endif
