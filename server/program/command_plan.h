/* The resources for serving a model, for `quire inspect --plan` and `quire list`. */
#ifndef QUIRE_SERVER_PROGRAM_COMMAND_PLAN_H
#define QUIRE_SERVER_PROGRAM_COMMAND_PLAN_H

#include "config/options.h"
#include "models/config/model.h"
#include "models/tokenizer/tokenizer.h"
#include "server/program/memory_table.h"

struct command_plan {
    struct executor_info info;
    struct memory_table memory; /* -> info */
    struct executor_traffic traffic[BACKEND_MAX_RANKS];
};

/* Reads the options of `quire serve` in argv, the environment and the configuration file, for the
 * model at path. The caller finishes *out. ERROR_CONFIG, ERROR_MEMORY. */
int command_plan_options(const char *path, int argc, char *const *argv, struct options *out,
                         struct error *err);

/* Plans the memory; nothing is loaded. Errors as executor_plan. */
int command_plan_make(const struct model *model, const struct tokenizer *tokenizer,
                      const struct options *options, struct command_plan *out, struct error *err);

/* The needs of ranks on separate machines (docs/scale.md), for `quire inspect --plan`: the memory
 * of each, and the network of all. */

struct rank_plan {
    const struct memory_table *table;       /* of two ranks or more, without a GPU */
    const struct executor_traffic *traffic; /* [table->executor->num_ranks] */
};

/* Writes lines as memory_table_write does. */
void command_plan_write_ranks(const struct rank_plan *plan,
                              void (*write)(void *context, const char *line), void *context);

#endif
