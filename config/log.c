/* A line is built in a local buffer and written by one write(2), so lines of different threads
 * never mix. Whether stderr is the journal is decided for each line from JOURNAL_STREAM, as
 * systemd.exec(5) advises: the variable holds the device and inode of the stream, and is stale if
 * stderr was redirected since. */
#include "config/log.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MAX_LINE 2048

static _Atomic int current_level = LOG_INFO;

static const struct {
    const char *name;
    int priority; /* syslog(3)'s number, which sd-daemon(3) uses */
} levels[] = {{"ERROR", 3}, {"WARNING", 4}, {"INFO", 6}, {"DEBUG", 7}};

static bool stderr_is_journal(void) {
    const char *stream = getenv("JOURNAL_STREAM");
    uintmax_t device, inode;
    struct stat status;
    return stream != NULL && sscanf(stream, "%ju:%ju", &device, &inode) == 2 &&
           fstat(STDERR_FILENO, &status) == 0 && status.st_dev == device && status.st_ino == inode;
}

static size_t write_prefix(enum log_level level, char *line) {
    if (stderr_is_journal())
        return (size_t)sprintf(line, "<%d>", levels[level].priority);
    struct timespec now;
    struct tm utc;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    size_t length = strftime(line, 64, "%Y-%m-%dT%H:%M:%S", &utc);
    return length + (size_t)sprintf(line + length, ".%03ldZ %-7s ", now.tv_nsec / 1000000,
                                    levels[level].name);
}

void log_set_level(enum log_level level) {
    atomic_store_explicit(&current_level, level, memory_order_relaxed);
}

void log_write(enum log_level level, const char *format, ...) {
    if ((int)level > atomic_load_explicit(&current_level, memory_order_relaxed))
        return;
    char line[MAX_LINE];
    size_t start = write_prefix(level, line), room = MAX_LINE - 1 - start;
    va_list args;
    va_start(args, format);
    int wanted = vsnprintf(line + start, room, format, args);
    va_end(args);
    if (wanted < 0)
        return;
    size_t length = (size_t)wanted < room ? (size_t)wanted : room - 1;
    for (size_t i = start; i < start + length; i++)
        if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f)
            line[i] = '?';
    line[start + length] = '\n';
    /* A log that cannot be written must not stop the server. */
    ssize_t written = write(STDERR_FILENO, line, start + length + 1);
    (void)written;
}
