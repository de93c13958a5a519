/* Touches the pages of a buffer before their use. The buffer is used in the order of its addresses,
 * like a KV pool whose blocks are handed out lowest first. A page that the system provides within a
 * step stops the thread that touches it, and soon the others, while it is being cleared. A thread
 * touches pages whenever a core is idle, on the cores that the creator may run on, so that the
 * pages get the same NUMA placement. The pages that are ready but unused are a small part of those
 * in use. */
#ifndef QUIRE_KERNELS_CPU_MEMORY_CPU_PAGE_AHEAD_H
#define QUIRE_KERNELS_CPU_MEMORY_CPU_PAGE_AHEAD_H

#include "config/base/error.h"
#include "kernels/backend.h"

#include <stddef.h>

struct cpu_page_ahead;

/* NULL: ERROR_MEMORY, ERROR_IO. */
struct cpu_page_ahead *cpu_page_ahead_create(struct error *err);
void cpu_page_ahead_destroy(struct cpu_page_ahead *ahead); /* accepts NULL */

/* Reports that the buffer, memory from cpu_memory_alloc, is used up to used_bytes (or to a larger
 * size of an earlier call). Only one buffer is followed at a time, the latest; a small one is not
 * followed. One thread calls this and the next function. Does not block unless the buffer differs
 * from that of the previous call. */
void cpu_page_ahead_follow(struct cpu_page_ahead *ahead, const struct buffer *buffer,
                           size_t used_bytes);
/* Returns once the buffer is no longer touched; it may then be freed. */
void cpu_page_ahead_forget(struct cpu_page_ahead *ahead, const struct buffer *buffer);

/* Returns how far the pages of such a buffer should be ready: ahead of the used part by an eighth
 * of it, at least 4 MiB and at most 64 MiB. */
size_t cpu_page_ahead_goal(size_t used_bytes, size_t buffer_bytes);

#endif
