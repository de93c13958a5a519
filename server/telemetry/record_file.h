/* The file of --record, and the one before it: FILE and FILE.1, of mode 0600, since prompts are in
 * them. A thread of its own writes (outbox.h); whoever hands bytes over never waits. */
#ifndef QUIRE_SERVER_RECORD_FILE_H
#define QUIRE_SERVER_RECORD_FILE_H

#include "config/base/error.h"

#include <stdbool.h>
#include <stddef.h>

/* What waits to be written, and what is being written, at most. */
#define RECORD_FILE_MAX_BYTES ((size_t)64 << 20)

struct record_file;

/* Makes FILE; one that is there becomes FILE.1. ERROR_CONFIG where it cannot be made, and where it
 * or FILE.1 is there and no recording: nothing else is moved or overwritten. */
int record_file_open(const char *path, struct record_file **out, struct error *err);
/* One thread; see recorder_config.write. */
int record_file_write(void *file, bool begins, const void *data, size_t length);
/* Writes what waits, as far as that is possible soon. Accepts NULL. */
void record_file_close(struct record_file *file);

#endif
