/* The NUMA nodes of the machine, each with memory near its CPUs, and how ranks are dealt out to
 * them. Linux describes them under /sys/devices/system/node. */
#ifndef QUIRE_ENGINE_EXECUTOR_NUMA_NODES_H
#define QUIRE_ENGINE_EXECUTOR_NUMA_NODES_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

#define NUMA_MAX_NODES 64 /* those beyond are not used */

struct numa_nodes {
    int32_t count;
    cpu_set_t cpus[NUMA_MAX_NODES]; /* of each, never none */
};

/* Parses numbers and ranges as Linux lists them, "0-3,8,10-11". Returns false for anything else, a
 * number of CPU_SETSIZE or more included. */
bool numa_nodes_parse(const char *list, cpu_set_t *out);

/* Reads the nodes that `dir` describes, as far as their CPUs are among `allowed`: nodes without one
 * are left out. What cannot be read is no node. */
void numa_nodes_read(const char *dir, const cpu_set_t *allowed, struct numa_nodes *out);

/* Stores the CPUs of the nodes that a rank gets: each rank has as many nodes, one at least, with
 * one more for some. Returns false when there are fewer nodes than ranks. */
bool numa_nodes_share(const struct numa_nodes *nodes, int32_t rank, int32_t num_ranks,
                      cpu_set_t *out);

#endif
