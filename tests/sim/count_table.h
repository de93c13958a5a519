/* What a run of many seeds has counted: each is to occur, or the run shows less than it says. */
#ifndef QUIRE_TESTS_SIM_COUNT_TABLE_H
#define QUIRE_TESTS_SIM_COUNT_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct counted {
    const char *what;
    uint64_t count;
};

/* Prints a line for each. Returns false when something has never occurred. */
bool count_table_print(const struct counted *rows, size_t num_rows);

#endif
