/* Memory of the CPU backend: aligned to 64 bytes, zeroed, and where it is large given by the system
 * page by page on first touch. */
#ifndef QUIRE_KERNELS_CPU_CPU_MEMORY_H
#define QUIRE_KERNELS_CPU_CPU_MEMORY_H

#include "config/base/error.h"
#include "kernels/backend.h"

#include <stddef.h>

int cpu_memory_alloc(size_t bytes, struct buffer *out, struct error *err);
/* Accepts a zeroed buffer; zeroes it. */
void cpu_memory_free(struct buffer *buffer);

/* Bytes that can still be allocated without swapping, and all there are: the machine's, cut down to
 * the limits of the process' control groups (control_group.h), by memory.max and memory.high of
 * version 2, memory.limit_in_bytes of version 1. A group's page cache and reclaimable slab count as
 * free: they make room (Linux, Admin Guide: cgroup-v2.rst, memory.stat; cgroup-v1/memory.rst). root
 * goes before /proc/meminfo and what the groups are in: "" is the machine. Zeros when that cannot
 * be read. */
void cpu_memory_info(const char *root, size_t *out_free, size_t *out_total);

#endif
