#include "fail_file.h"

#include "fatal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

namespace cudasim {

static bool read_kind(const char *text, failing_work *out) {
    if (strcmp(text, "kernel") == 0)
        *out = failing_work::kernel;
    else if (strcmp(text, "graph") == 0)
        *out = failing_work::graph_kernel;
    else if (strcmp(text, "nccl") == 0)
        *out = failing_work::collective;
    else
        return false;
    return true;
}

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
    if (count != 2 || !read_kind(kind, &file.kind) || unlink(file.path) != 0)
        fatal("%s is not \"graph\", \"kernel\" or \"nccl\" and a number, or cannot be removed",
              file.path);
    file.is_ordered = true;
    file.num_left = number;
}

static bool counts_down(fail_file &file, failing_work kind) {
    if (file.path != nullptr && !file.is_ordered)
        look(file);
    return file.is_ordered && kind == file.kind && file.num_left-- == 0;
}

bool fails_next(fail_file &file, bool in_graph) {
    return counts_down(file, in_graph ? failing_work::graph_kernel : failing_work::kernel);
}

bool fails_next_collective(fail_file &file) {
    return counts_down(file, failing_work::collective);
}

} // namespace cudasim
