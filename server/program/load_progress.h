/* Decides what is reported while weights load, and when. Nothing in the first two seconds, so a
 * model that takes less is loaded silently; then on a terminal a status a few times a second,
 * elsewhere a log line every five seconds. After everything was read, a permanent line says how
 * long it took, if anything was reported before. */
#ifndef QUIRE_SERVER_PROGRAM_LOAD_PROGRESS_H
#define QUIRE_SERVER_PROGRAM_LOAD_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LOAD_PROGRESS_LINE_BYTES 96

enum load_progress_kind {
    LOAD_PROGRESS_NONE,
    LOAD_PROGRESS_STATUS, /* replaces the previous one (log_status) */
    LOAD_PROGRESS_LOG,
};

struct load_progress {
    int64_t started_ns;
    int64_t next_ns; /* when the next line is due */
    bool is_terminal, is_shown;
};

void load_progress_start(struct load_progress *out, int64_t now_ns, bool is_terminal);
/* bytes_read never decreases; when it is num_bytes, everything was read. Writes the line unless the
 * kind is NONE. */
enum load_progress_kind load_progress_update(struct load_progress *progress, size_t bytes_read,
                                             size_t num_bytes, int64_t now_ns,
                                             char line[static LOAD_PROGRESS_LINE_BYTES]);

#endif
