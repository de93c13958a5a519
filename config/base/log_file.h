/* The file that stderr is redirected to. Programs like logrotate move it away and send SIGHUP; a
 * new file is then opened under the old name. */
#ifndef QUIRE_CONFIG_BASE_LOG_FILE_H
#define QUIRE_CONFIG_BASE_LOG_FILE_H

#include "config/base/error.h"

#include <limits.h>

struct log_file {
    char path[PATH_MAX]; /* empty: stderr is not a regular file */
};

/* Finds the file that stderr is redirected to. Called at start, while it still has its name. */
void log_file_find(struct log_file *out);

/* Opens the path again for appending when it now names another file or none, and redirects stderr
 * to it, and stdout too if that was the same file. Returns 1 when it did so, 0 when there was
 * nothing to do, -1 (ERROR_IO) when the file cannot be opened: the log then stays in the old
 * file. */
int log_file_reopen(const struct log_file *file, struct error *err);

#endif
