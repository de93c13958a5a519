/* What ranks need that are processes on machines of their own (docs/scale.md), for `quire inspect
 * --plan`: each its memory, and all of them a network. */
#ifndef QUIRE_SERVER_RANK_PLAN_H
#define QUIRE_SERVER_RANK_PLAN_H

#include "server/program/memory_table.h"

struct rank_plan {
    const struct memory_table *table;       /* of two ranks or more, without a GPU */
    const struct executor_traffic *traffic; /* [table->executor->num_ranks] */
};

/* Writes lines as memory_table_write does. */
void rank_plan_write(const struct rank_plan *plan, void (*write)(void *context, const char *line),
                     void *context);

#endif
