#include "fail_file.h"

#include "fatal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

namespace cudasim {

/* Looks for an order, and removes the file. */
static void look(fail_file &file) {
    FILE *order = fopen(file.path, "r");
    if (order == nullptr && errno == ENOENT)
        return;
    char kind[8] = "";
    unsigned long long number = 0;
    int count = order != nullptr ? fscanf(order, "%7s %llu", kind, &number) : 0;
    if (order != nullptr)
        fclose(order);
    file.counts_graphs = strcmp(kind, "graph") == 0;
    if (count != 2 || (!file.counts_graphs && strcmp(kind, "kernel") != 0) ||
        unlink(file.path) != 0)
        fatal("%s is not \"graph\" or \"kernel\" and a number, or cannot be removed", file.path);
    file.is_ordered = true;
    file.num_left = number;
}

bool fails_next(fail_file &file, bool in_graph) {
    if (file.path != nullptr && !file.is_ordered)
        look(file);
    return file.is_ordered && in_graph == file.counts_graphs && file.num_left-- == 0;
}

} // namespace cudasim
