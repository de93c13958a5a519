/* Statistics of a process, from /proc (proc(5)). */
#ifndef QUIRE_SERVER_PROCESS_PROCESS_STATS_H
#define QUIRE_SERVER_PROCESS_PROCESS_STATS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Values that cannot be read are 0. */
struct process_stats {
    double cpu_seconds;   /* of all threads, user and system */
    double start_seconds; /* since 1970 */
    size_t virtual_bytes, resident_bytes;
    int64_t num_files, max_files; /* descriptors open, and how many may be; of this process alone */
};

/* Any thread. Takes some microseconds, and more with thousands of open files. */
void process_stats_read(struct process_stats *out);
/* The same for a child of this process; all 0 if there is no such child or it has ended. Any
 * thread. */
void process_stats_read_child(pid_t pid, struct process_stats *out);

#endif
