/* The file that stderr was redirected to, for programs that move it away and send SIGHUP
 * (logrotate): a new one is opened by the old name. */
#ifndef QUIRE_CONFIG_LOG_FILE_H
#define QUIRE_CONFIG_LOG_FILE_H

#include "config/base/error.h"

#include <limits.h>

struct log_file {
    char path[PATH_MAX]; /* empty: stderr is no regular file */
};

/* Finds the file behind stderr: at start, while it still has its name. */
void log_file_find(struct log_file *out);

/* Opens the file again, to append, when the name stands for another one now or for none, and puts
 * it in the place of stderr, and of stdout where that was the same file. Returns 1 when that was
 * done, 0 when there was nothing to do, -1 (ERROR_IO) when it cannot be opened: the log stays on
 * the old file then. */
int log_file_reopen(const struct log_file *file, struct error *err);

#endif
