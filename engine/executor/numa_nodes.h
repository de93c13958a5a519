/* The NUMA nodes of the machine, each with memory near its CPUs, and how they are divided among
 * ranks. Linux describes them under /sys/devices/system/node. */
#ifndef QUIRE_ENGINE_EXECUTOR_NUMA_NODES_H
#define QUIRE_ENGINE_EXECUTOR_NUMA_NODES_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

#define NUMA_MAX_NODES 64 /* further nodes are not used */

struct numa_nodes {
    int32_t count;
    cpu_set_t cpus[NUMA_MAX_NODES]; /* of each node; never empty */
};

/* Parses numbers and ranges in Linux's format, "0-3,8,10-11". Returns false for anything else,
 * including numbers from CPU_SETSIZE on. */
bool numa_nodes_parse(const char *list, cpu_set_t *out);

/* Reads the nodes that `dir` describes, restricted to the CPUs in `allowed`; nodes without any of
 * them are left out. What cannot be read is not a node. */
void numa_nodes_read(const char *dir, const cpu_set_t *allowed, struct numa_nodes *out);

/* Stores the CPUs of the nodes that a rank gets. Every rank gets the same number of nodes, at least
 * one; some get one more. Returns false when there are fewer nodes than ranks. */
bool numa_nodes_share(const struct numa_nodes *nodes, int32_t rank, int32_t num_ranks,
                      cpu_set_t *out);

#endif
