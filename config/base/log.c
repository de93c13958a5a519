/* A line is built in a local buffer and written by one system call, so lines of different threads
 * never mix. Nobody ever waits for whoever reads the log: what does not go out at once is lost, and
 * counted. O_NONBLOCK would do it, but it belongs to the open file, which the shell and other
 * programs share with us. So a socket (the journal's) is asked per call, and of all else poll(2)
 * reports: a pipe that takes anything takes PIPE_BUF bytes, more than a line. A terminal may take a
 * part of it and make the rest wait, so it is opened once more. The lock keeps two threads from
 * relying on the same room. Whether stderr is the journal is decided for each line from
 * JOURNAL_STREAM, as systemd.exec(5) advises: the variable holds the device and inode of the
 * stream, and is stale if stderr was redirected since. */
#include "config/base/log.h"

#include "config/base/utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MAX_LINE 2048
_Static_assert(MAX_LINE <= PIPE_BUF, "a line fits where a pipe has room");

static _Atomic int current_level = LOG_INFO;
static _Atomic uint64_t num_lost, num_lost_reported;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool status_is_shown; /* guarded by lock, as is whether the last line has no end */
static bool is_cut;

/* To the start of the line, which is cleared (ECMA-48: EL). */
#define CLEAR_LINE "\r\x1b[K"

static const struct {
    const char *option; /* its name in options */
    const char *name;   /* in the log */
    int priority;       /* syslog(3)'s number, which sd-daemon(3) uses */
} levels[] = {
    {"error", "ERROR", 3}, {"warning", "WARNING", 4}, {"info", "INFO", 6}, {"debug", "DEBUG", 7}};

bool log_is_journal(int fd) {
    const char *stream = getenv("JOURNAL_STREAM");
    uintmax_t device, inode;
    struct stat status;
    return stream != NULL && sscanf(stream, "%ju:%ju", &device, &inode) == 2 &&
           fstat(fd, &status) == 0 && status.st_dev == device && status.st_ino == inode;
}

static size_t write_prefix(enum log_level level, char *line) {
    if (log_is_journal(STDERR_FILENO))
        return (size_t)sprintf(line, "<%d>", levels[level].priority);
    struct timespec now;
    struct tm utc;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    size_t length = strftime(line, 64, "%Y-%m-%dT%H:%M:%S", &utc);
    return length + (size_t)sprintf(line + length, ".%03ldZ %-7s ", now.tv_nsec / 1000000,
                                    levels[level].name);
}

static ssize_t write_terminal(const char *line, size_t length) {
    int fd = open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        return write(STDERR_FILENO, line, length);
    ssize_t written = write(fd, line, length);
    close(fd);
    return written;
}

/* The lock is held. */
static bool write_now(const char *line, size_t length) {
    ssize_t written = send(STDERR_FILENO, line, length, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (written < 0 && errno == ENOTSOCK) {
        struct pollfd output = {.fd = STDERR_FILENO, .events = POLLOUT};
        if (poll(&output, 1, 0) == 0)
            return false;
        written = isatty(STDERR_FILENO) ? write_terminal(line, length)
                                        : write(STDERR_FILENO, line, length);
    }
    if (written > 0)
        is_cut = written < (ssize_t)length;
    return written == (ssize_t)length;
}

/* Reports in the log, in their place, that lines were lost since the last one that went out. */
static bool report_lost(void) {
    uint64_t lost = num_lost - num_lost_reported;
    if (lost == 0)
        return true;
    char line[128];
    size_t length = write_prefix(LOG_WARNING, line);
    length +=
        (size_t)sprintf(line + length, "%" PRIu64 " lines of the log could not be written\n", lost);
    if (!write_now(line, length))
        return false;
    num_lost_reported += lost;
    return true;
}

/* A log that cannot be written must not stop the server. */
static void write_line(const char *line, size_t length) {
    pthread_mutex_lock(&lock);
    if (status_is_shown)
        status_is_shown = !write_now(CLEAR_LINE, strlen(CLEAR_LINE));
    if ((is_cut && !write_now("\n", 1)) || !report_lost() || !write_now(line, length))
        num_lost++;
    pthread_mutex_unlock(&lock);
}

bool log_is_terminal(void) {
    return isatty(STDERR_FILENO);
}

uint64_t log_num_lost(void) {
    return num_lost;
}

void log_set_level(enum log_level level) {
    atomic_store_explicit(&current_level, level, memory_order_relaxed);
}

enum log_level log_get_level(void) {
    return (enum log_level)atomic_load_explicit(&current_level, memory_order_relaxed);
}

bool log_level_parse(const char *name, enum log_level *out) {
    for (int level = LOG_ERROR; level <= LOG_DEBUG; level++) {
        if (strcmp(name, levels[level].option) == 0) {
            *out = (enum log_level)level;
            return true;
        }
    }
    return false;
}

const char *log_level_name(enum log_level level) {
    return levels[level].option;
}

static bool is_logged(enum log_level level) {
    return (int)level <= atomic_load_explicit(&current_level, memory_order_relaxed);
}

/* Appends the text, cut at MAX_LINE - 1, to the line's first `start` bytes. Returns the length. */
static size_t write_text(char *line, size_t start, const char *format, va_list args) {
    size_t room = MAX_LINE - 1 - start;
    int wanted = vsnprintf(line + start, room, format, args);
    if (wanted < 0)
        return start;
    size_t length = start + ((size_t)wanted < room ? (size_t)wanted : room - 1);
    utf8_hide_controls(line + start, length - start);
    return length;
}

void log_write(enum log_level level, const char *format, ...) {
    if (!is_logged(level))
        return;
    char line[MAX_LINE];
    va_list args;
    va_start(args, format);
    size_t length = write_text(line, write_prefix(level, line), format, args);
    va_end(args);
    line[length] = '\n';
    write_line(line, length + 1);
}

/* A status that is not written is not counted as lost: the next one replaces it. */
void log_status(const char *format, ...) {
    if (!is_logged(LOG_INFO) || !log_is_terminal())
        return;
    char line[MAX_LINE] = CLEAR_LINE;
    va_list args;
    va_start(args, format);
    size_t length = write_text(line, strlen(CLEAR_LINE), format, args);
    va_end(args);
    pthread_mutex_lock(&lock);
    write_now(line, length);
    status_is_shown = true;
    pthread_mutex_unlock(&lock);
}
