/* Memory of the CPU backend: aligned to 64 bytes, zeroed, and if large, provided by the system page
 * by page on first touch. */
#ifndef QUIRE_KERNELS_CPU_MEMORY_CPU_MEMORY_H
#define QUIRE_KERNELS_CPU_MEMORY_CPU_MEMORY_H

#include "config/base/error.h"
#include "kernels/backend.h"

#include <stddef.h>

int cpu_memory_alloc(size_t bytes, struct buffer *out, struct error *err);
/* Accepts a zeroed buffer; zeroes it. */
void cpu_memory_free(struct buffer *buffer);

/* Finds the bytes that can still be allocated without swapping, and the total: those of the
 * machine, within the limits of the process's control groups (control_group.h): memory.max and
 * memory.high of version 2, memory.limit_in_bytes of version 1. A group's page cache and
 * reclaimable slab count as free, because they make room (Linux, Admin Guide: cgroup-v2.rst,
 * memory.stat; cgroup-v1/memory.rst). root is put before /proc/meminfo and the groups' paths ("" is
 * the real machine). Zeros when they cannot be read. */
void cpu_memory_info(const char *root, size_t *out_free, size_t *out_total);

#endif
