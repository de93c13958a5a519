/* The models that `quire serve` is to serve: those of --model, those of `models:` in the
 * configuration file, then those found in --models-dir and, with --models-hub, in the hub's cache.
 * The first is the default model. */
#ifndef QUIRE_SERVER_PROGRAM_MODEL_LIST_H
#define QUIRE_SERVER_PROGRAM_MODEL_LIST_H

#include "config/model_options.h"

/* Reads the command line, the environment and the configuration file, and looks for models; depends
 * on nothing read before, so that SIGHUP may call it again. (Secrets that options_hide_secrets has
 * overwritten are then asterisks in *out.) The list has at least one model, each with a name and a
 * path or hub name; whether that exists is not checked. One --model alone gives the options of
 * options_load. On failure returns -1 with one line and nothing to free: ERROR_CONFIG, or
 * ERROR_MEMORY, or ERROR_IO. Free the list with model_options_finish. */
int model_list_load(int argc, char *const *argv, char *const *environ, struct model_list *out,
                    struct error *err);

#endif
