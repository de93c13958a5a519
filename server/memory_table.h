/* The device and all memory by part, one line each: in the log at start, and for
 * `quire inspect --plan`. The parts of the system's memory add up to a total that the process does
 * not exceed. */
#ifndef QUIRE_SERVER_MEMORY_TABLE_H
#define QUIRE_SERVER_MEMORY_TABLE_H

#include "engine/executor/worker_executor.h"

struct memory_table {
    const struct worker_info *worker;
    const struct worker_config *config;
    size_t engine_bytes;  /* at most, see engine_memory.h */
    size_t http_bytes;    /* at most, see http_server.h */
    size_t program_bytes; /* the rest: code, tokenizer, templates, vocabulary */
    int64_t max_connections;
};

/* What is resident now and in none of the parts above. Weights, or the host pool of a card, are
 * taken to be there when `loaded`. */
size_t memory_table_program_bytes(const struct worker_info *worker, bool loaded);

/* Of the system's memory: on the CPU all parts, beside a card what is not on the card. */
size_t memory_table_total(const struct memory_table *table);

/* write gets each line, NUL-terminated, without its end. */
void memory_table_write(const struct memory_table *table,
                        void (*write)(void *context, const char *line), void *context);

#endif
