/* Readies the pages of a buffer that is used in the order of its addresses, a KV pool whose blocks
 * are handed out lowest first, ahead of their use: a page that the system gives within a step
 * halts the thread that touches it, and soon the others, for as long as clearing it takes. A thread
 * does it whenever a core is idle, on the cores that the creator may run on, so that the pages lie
 * where its own would. What is ready and not used yet is a small part of what is used. */
#ifndef QUIRE_KERNELS_CPU_CPU_PAGE_AHEAD_H
#define QUIRE_KERNELS_CPU_CPU_PAGE_AHEAD_H

#include "config/base/error.h"
#include "kernels/backend.h"

#include <stddef.h>

struct cpu_page_ahead;

/* NULL: ERROR_MEMORY, ERROR_IO. */
struct cpu_page_ahead *cpu_page_ahead_create(struct error *err);
void cpu_page_ahead_destroy(struct cpu_page_ahead *ahead); /* accepts NULL */

/* The buffer, memory of cpu_memory_alloc, is used up to used_bytes, or was in a call before. One
 * buffer is followed at a time, the last; a small one not at all. One thread calls this and the
 * next. Waits for nothing unless the buffer is another than in the call before. */
void cpu_page_ahead_follow(struct cpu_page_ahead *ahead, const struct buffer *buffer,
                           size_t used_bytes);
/* Returns when nothing more is done to the buffer, which may then be freed. */
void cpu_page_ahead_forget(struct cpu_page_ahead *ahead, const struct buffer *buffer);

/* Returns how far the pages of such a buffer are to be ready: an eighth of what is used ahead of
 * it, at least 4 MiB and at most 64. */
size_t cpu_page_ahead_goal(size_t used_bytes, size_t buffer_bytes);

#endif
