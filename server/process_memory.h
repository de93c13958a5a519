/* What this process has of the system's memory. */
#ifndef QUIRE_SERVER_PROCESS_MEMORY_H
#define QUIRE_SERVER_PROCESS_MEMORY_H

#include <stddef.h>

/* Bytes of its pages that are in memory now; 0 where the system does not tell. */
size_t process_memory_resident(void);

#endif
