/* The device and all memory by part, one line each: in the log at start, and for `quire inspect
 * --plan`. The parts of the system's memory add up to a total that the process does not exceed. The
 * device's parts are of all ranks; where there are several, a line each says what it has of them.
 */
#ifndef QUIRE_SERVER_MEMORY_TABLE_H
#define QUIRE_SERVER_MEMORY_TABLE_H

#include "engine/executor/executor.h"

struct memory_table {
    const struct executor_info *executor;
    size_t engine_bytes;   /* at most, see engine_memory_bytes */
    size_t http_bytes;     /* at most, see http_server.h */
    size_t response_bytes; /* of responses that are kept, at most; 0: none are */
    size_t program_bytes;  /* the rest: code, tokenizer, templates, vocabulary */
    int64_t max_connections;
};

/* Returns the bytes of this process's pages that are in memory now; 0 where the system does not
 * say. */
size_t memory_table_resident(void);
/* Returns what is in none of the parts above: on the CPU planned, at most, so that it is the same
 * before and after the start; beside a GPU, whose driver and libraries decide it, what is resident
 * now of all processes, without the host block pool when that is `loaded`. */
size_t memory_table_program_bytes(const struct executor_info *info, int num_processes, bool loaded);

/* Returns the bytes of the system's memory: on the CPU of all parts, beside a GPU of what is not on
 * it. */
size_t memory_table_total(const struct memory_table *table);

/* Writes the table: write gets each line, NUL-terminated, without its end. */
void memory_table_write(const struct memory_table *table,
                        void (*write)(void *context, const char *line), void *context);

#endif
