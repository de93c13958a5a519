/* Host block pools that two processes share: the rank process, which moves blocks, and the
 * engine's, which writes them to a store (engine/kv/kv_store.h) and reads them from there. A file
 * without a name holds those of all ranks, each at a place of its own. */
#ifndef QUIRE_ENGINE_EXECUTOR_HOST_MEMORY_H
#define QUIRE_ENGINE_EXECUTOR_HOST_MEMORY_H

#include "config/base/error.h"

#include <stddef.h>
#include <stdint.h>

#define HOST_POOLS_PER_RANK 3 /* of the model, the draft model, and hidden states */

/* Returns a descriptor of at least min_fd that is closed on exec, or -1. The file cannot be
 * shortened, which would cause a SIGBUS in the other process; it takes memory as it is written. */
int host_memory_create(int min_fd, struct error *err);
/* Maps the pool of that number: rank * HOST_POOLS_PER_RANK + the pool of the rank. Returns NULL
 * when the system refuses. Its pages are zero until one of the processes writes to them, and freed
 * with the file, or by host_memory_release. */
void *host_memory_map(int fd, int32_t pool, size_t bytes, struct error *err);
/* Gives the system the pages back, which are zero from then on for all processes: closing a mapping
 * leaves them in the file. Accepts NULL. */
void host_memory_release(void *memory, size_t bytes);
void host_memory_unmap(void *memory, size_t bytes); /* accepts NULL */

#endif
