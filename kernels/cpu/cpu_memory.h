/* Memory of the CPU backend: aligned to 64 bytes, zeroed, and where it is large given by the system
 * page by page on first touch. */
#ifndef QUIRE_KERNELS_CPU_CPU_MEMORY_H
#define QUIRE_KERNELS_CPU_CPU_MEMORY_H

#include "config/error.h"
#include "kernels/backend.h"

#include <stddef.h>

int cpu_memory_alloc(size_t bytes, struct buffer *out, struct error *err);
/* Accepts a zeroed buffer; zeroes it. */
void cpu_memory_free(struct buffer *buffer);

/* Bytes that can still be allocated without swapping, and all there are: the machine's
 * (meminfo_path: /proc/meminfo), cut down to the limit of the control group mounted at cgroup_dir
 * (/sys/fs/cgroup) where it has one. Zeros when meminfo_path cannot be read. */
void cpu_memory_info(const char *meminfo_path, const char *cgroup_dir, size_t *out_free,
                     size_t *out_total);

#endif
