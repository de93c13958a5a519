#include "engine/executor/numa_nodes.h"

#include <stdio.h>
#include <string.h>

#define MAX_LIST_BYTES 8192
#define MAX_PATH_BYTES 512

/* Reads a number below CPU_SETSIZE. Returns what follows it, or NULL if there is no such number. */
static const char *parse_number(const char *text, int *out) {
    int number = 0, num_digits = 0;
    for (; *text >= '0' && *text <= '9'; text++, num_digits++) {
        number = number * 10 + (*text - '0');
        if (number >= CPU_SETSIZE)
            return NULL;
    }
    *out = number;
    return num_digits > 0 ? text : NULL;
}

bool numa_nodes_parse(const char *list, cpu_set_t *out) {
    CPU_ZERO(out);
    if (*list == '\0')
        return true;
    for (;; list++) {
        int first, last;
        list = parse_number(list, &first);
        last = first;
        if (list != NULL && *list == '-')
            list = parse_number(list + 1, &last);
        if (list == NULL || last < first)
            return false;
        for (int i = first; i <= last; i++)
            CPU_SET((size_t)i, out);
        if (*list != ',')
            return *list == '\0';
    }
}

/* Reads a file of one line; a line that is too long is not read. */
static bool read_list(const char *dir, const char *name, cpu_set_t *out) {
    char path[MAX_PATH_BYTES], line[MAX_LIST_BYTES];
    int length = snprintf(path, sizeof(path), "%s/%s", dir, name);
    FILE *file = length > 0 && (size_t)length < sizeof(path) ? fopen(path, "re") : NULL;
    if (file == NULL)
        return false;
    bool is_read = fgets(line, sizeof(line), file) != NULL;
    fclose(file);
    if (!is_read || strlen(line) == sizeof(line) - 1)
        return false;
    line[strcspn(line, "\n")] = '\0';
    return numa_nodes_parse(line, out);
}

void numa_nodes_read(const char *dir, const cpu_set_t *allowed, struct numa_nodes *out) {
    cpu_set_t online;
    out->count = 0;
    if (!read_list(dir, "online", &online))
        return;
    for (size_t node = 0; node < CPU_SETSIZE && out->count < NUMA_MAX_NODES; node++) {
        char name[64];
        cpu_set_t cpus;
        snprintf(name, sizeof(name), "node%zu/cpulist", node);
        if (!CPU_ISSET(node, &online) || !read_list(dir, name, &cpus))
            continue;
        CPU_AND(&cpus, &cpus, allowed);
        if (CPU_COUNT(&cpus) > 0)
            out->cpus[out->count++] = cpus;
    }
}

bool numa_nodes_share(const struct numa_nodes *nodes, int32_t rank, int32_t num_ranks,
                      cpu_set_t *out) {
    if (nodes->count < num_ranks)
        return false;
    CPU_ZERO(out);
    int32_t end = nodes->count * (rank + 1) / num_ranks;
    for (int32_t i = nodes->count * rank / num_ranks; i < end; i++)
        CPU_OR(out, out, &nodes->cpus[i]);
    return true;
}
