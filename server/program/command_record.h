/* Shared by `quire serve --record` and `quire replay`: the header of a recording. */
#ifndef QUIRE_SERVER_PROGRAM_COMMAND_RECORD_H
#define QUIRE_SERVER_PROGRAM_COMMAND_RECORD_H

#include "config/options.h"
#include "engine/engine.h"
#include "engine/executor/executor.h"
#include "engine/record/record_header.h"

/* Describes an engine and its executor. ERROR_CONFIG for a model or a speculative-config that is
 * too long. */
int command_record_describe(const struct options *options, const struct executor_info *info,
                            const struct engine_config *engine, struct record_header *out,
                            struct error *err);

/* Reads the options in the header, overridden by those of argv, into *out. */
int command_record_options(const struct record_header *header, int argc, char *const *argv,
                           struct options *out, struct error *err);

#endif
