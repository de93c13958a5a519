#include "server/process_memory.h"

#include <stdio.h>
#include <unistd.h>

/* The second number of /proc/self/statm: resident pages. */
size_t process_memory_resident(void) {
    FILE *file = fopen("/proc/self/statm", "re");
    if (file == NULL)
        return 0;
    size_t pages = 0;
    if (fscanf(file, "%*s %zu", &pages) != 1)
        pages = 0;
    fclose(file);
    long page_bytes = sysconf(_SC_PAGESIZE);
    return page_bytes > 0 ? pages * (size_t)page_bytes : 0;
}
