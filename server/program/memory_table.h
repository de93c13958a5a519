/* The device and all memory by part, one line each: in the log at start, and for `quire inspect
 * --plan`. The parts of host memory add up to a total that the process does not exceed. The
 * device's parts are those of all ranks; if there are several, an extra line shows the share of
 * each.
 */
#ifndef QUIRE_SERVER_PROGRAM_MEMORY_TABLE_H
#define QUIRE_SERVER_PROGRAM_MEMORY_TABLE_H

#include "engine/executor/executor.h"

struct memory_table {
    const struct executor_info *executor;
    size_t engine_bytes;   /* at most, see engine_memory_bytes */
    size_t http_bytes;     /* at most, see http_server.h */
    size_t response_bytes; /* maximum of stored responses; 0: none are stored */
    size_t program_bytes;  /* the rest: code, tokenizer, templates, vocabulary */
    int64_t max_connections;
    bool is_brief; /* for the log: without the parts that no user sets the server up by */
};

/* Returns the resident memory of this process; 0 if unknown. */
size_t memory_table_resident(void);
/* Returns the memory that is in none of the parts above. On the CPU it is a planned maximum, so
 * that it is the same before and after the start. With a GPU, whose driver and libraries decide it,
 * it is the memory now resident in all processes, without the host block pool when that is
 * `loaded`. */
size_t memory_table_program_bytes(const struct executor_info *info, int num_processes, bool loaded);

/* Of one of several models, on the CPU: what its ranks take in a process of their own, and what its
 * vocabulary takes in the server's. */
size_t memory_table_rank_bytes(const struct executor_info *info);
size_t memory_table_vocabulary_bytes(const struct executor_info *info);

/* Returns the host memory in bytes: on the CPU that of all parts, with a GPU that of the parts not
 * on it. */
size_t memory_table_total(const struct memory_table *table);

/* Writes the table: write receives each line, NUL-terminated, without its line end. */
void memory_table_write(const struct memory_table *table,
                        void (*write)(void *context, const char *line), void *context);

#endif
