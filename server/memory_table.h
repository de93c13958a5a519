/* The device and its memory by part, one line each: in the log at start, and for
 * `quire inspect --plan`. */
#ifndef QUIRE_SERVER_MEMORY_TABLE_H
#define QUIRE_SERVER_MEMORY_TABLE_H

#include "engine/worker_executor.h"

/* write gets each line, NUL-terminated, without its end. */
void memory_table_write(const struct worker_info *worker, const struct worker_config *config,
                        void (*write)(void *context, const char *line), void *context);

#endif
