#include "tests/sim/count_table.h"

#include <stdio.h>

bool count_table_print(const struct counted *rows, size_t num_rows) {
    bool all = true;
    for (size_t i = 0; i < num_rows; i++) {
        printf("%12llu %s\n", (unsigned long long)rows[i].count, rows[i].what);
        all &= rows[i].count > 0;
    }
    return all;
}
