/* The file of --record, and the one before it: FILE and FILE.1, of mode 0600, because they contain
 * prompts. A separate thread writes (outbox.h); passing bytes to it never blocks. */
#ifndef QUIRE_SERVER_TELEMETRY_RECORD_FILE_H
#define QUIRE_SERVER_TELEMETRY_RECORD_FILE_H

#include "config/base/error.h"

#include <stdbool.h>
#include <stddef.h>

/* Maximum bytes waiting to be written and being written. */
#define RECORD_FILE_MAX_BYTES ((size_t)64 << 20)

struct record_file;

/* Fails as record_file_open would, as far as that can be seen without changing anything. */
int record_file_check(const char *path, struct error *err);
/* Creates FILE; an existing one becomes FILE.1. Fails with ERROR_CONFIG when it cannot be created,
 * or when FILE or FILE.1 exists and is not a recording: nothing else is moved or overwritten. */
int record_file_open(const char *path, struct record_file **out, struct error *err);
/* One thread; see recorder_config.write. */
int record_file_write(void *file, bool begins, const void *data, size_t length);
/* Writes what waits, as far as possible within a short time. Accepts NULL. */
void record_file_close(struct record_file *file);

#endif
