#include "server/telemetry/access_log.h"

#include "config/base/log.h"
#include "server/process/outbox.h"
#include "server/process/service.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_WAITING_BYTES (ACCESS_LOG_MAX_BYTES / 2)
#define MAX_WAITING_LINES 16384
#define POLL_MS 100
#define CLOSE_MS 2000

struct access_log {
    char *path; /* NULL: stdout */
    int fd;
    bool is_journal;
    atomic_bool wants_reopen;
    struct outbox *outbox;
    /* of the outbox's thread */
    bool is_cut; /* the last line has no end */
    bool is_failing;
};

/* O_NONBLOCK: a pipe that nobody reads is an error here, and no reason to wait later. */
static int open_file(const char *path) {
    return open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0640);
}

/* Returns false when the server stops while nobody takes anything. */
static bool wait_writable(const struct access_log *log) {
    struct pollfd output = {.fd = log->fd, .events = POLLOUT};
    int ready;
    while ((ready = poll(&output, 1, POLL_MS)) == 0)
        if (outbox_is_stopping(log->outbox))
            return false;
    return ready > 0 || errno == EINTR;
}

/* Returns how much to write at once: whole lines where a pipe may take no more than PIPE_BUF, so
 * that those of the other log do not come between. */
static size_t part_of(const char *data, size_t length) {
    if (length <= PIPE_BUF)
        return length;
    const char *end = memrchr(data, '\n', PIPE_BUF);
    return end != NULL ? (size_t)(end - data) + 1 : PIPE_BUF;
}

/* Returns how many bytes were written. */
static size_t write_out(const struct access_log *log, const char *data, size_t length) {
    size_t done = 0;
    while (done < length && wait_writable(log)) {
        ssize_t count = write(log->fd, data + done, part_of(data + done, length - done));
        if (count < 0 && errno != EAGAIN && errno != EINTR)
            break;
        done += count > 0 ? (size_t)count : 0;
    }
    return done;
}

static int32_t count_lines(const char *data, size_t length) {
    int32_t count = 0;
    for (size_t i = 0; i < length; i++)
        count += data[i] == '\n';
    return count;
}

/* Says in the other log when lines begin to be lost, not for each of them. */
static void note_failure(struct access_log *log, bool is_failing, int error) {
    if (is_failing && !log->is_failing)
        log_error("access-log: cannot be written: %s; its lines are lost until it can",
                  error != 0 ? strerror(error) : "nobody takes it");
    log->is_failing = is_failing;
}

static int32_t write_lines(struct access_log *log, const struct byte_buffer *lines) {
    if (log->is_cut && write_out(log, "\n", 1) == 1)
        log->is_cut = false;
    errno = 0;
    size_t done = log->is_cut ? 0 : write_out(log, lines->data, lines->length);
    int error = errno;
    if (done > 0)
        log->is_cut = lines->data[done - 1] != '\n';
    note_failure(log, done < lines->length, error);
    return count_lines(lines->data + done, lines->length - done);
}

/* An entry ends with an empty line. */
static int32_t send_entries(struct access_log *log, const struct byte_buffer *entries) {
    const char *at = entries->data, *end = entries->data + entries->length;
    int32_t num_lost = 0;
    while (at < end) {
        const char *next = memmem(at, (size_t)(end - at), "\n\n", 2);
        num_lost += service_journal_send(at, (size_t)(next - at) + 1) != 0;
        at = next + 2;
    }
    note_failure(log, num_lost > 0, errno);
    return num_lost;
}

static void reopen(struct access_log *log) {
    int fd = open_file(log->path);
    if (fd < 0) {
        log_error("access-log %.400s: %s; the old file stays", log->path, strerror(errno));
        return;
    }
    close(log->fd);
    log->fd = fd;
    log->is_cut = false;
}

static int32_t deliver(void *context, const struct byte_buffer *items, int32_t num_items) {
    struct access_log *log = context;
    int32_t num_lost = 0;
    if (num_items > 0)
        num_lost = log->is_journal ? send_entries(log, items) : write_lines(log, items);
    if (atomic_exchange(&log->wants_reopen, false))
        reopen(log);
    return num_lost;
}

static void free_log(struct access_log *log) {
    if (log->path != NULL && log->fd >= 0)
        close(log->fd);
    free(log->path);
    free(log);
}

static int open_target(struct access_log *log, const char *target, struct error *err) {
    if (strcmp(target, "-") == 0) {
        log->fd = STDOUT_FILENO;
        log->is_journal = service_is_journal(log->fd);
        return 0;
    }
    log->path = strdup(target);
    if (log->path == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for the access log");
    log->fd = open_file(target);
    return log->fd >= 0
               ? 0
               : error_set(err, ERROR_CONFIG, "access-log %.400s: %s", target, strerror(errno));
}

int access_log_open(const char *target, struct access_log **out, struct error *err) {
    *out = NULL;
    if (strcmp(target, "none") == 0)
        return 0;
    struct access_log *log = calloc(1, sizeof(*log));
    if (log == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for the access log");
    log->fd = -1;
    const struct outbox_config config = {.name = "quire-access",
                                         .max_bytes = MAX_WAITING_BYTES,
                                         .max_items = MAX_WAITING_LINES,
                                         .deliver = deliver,
                                         .context = log};
    if (open_target(log, target, err) != 0 || outbox_create(&config, &log->outbox, err) != 0) {
        free_log(log);
        return -1;
    }
    *out = log;
    return 0;
}

void access_log_write(struct access_log *log, const struct access_record *record) {
    struct byte_buffer line = {0};
    if (log == NULL)
        return;
    if (log->is_journal) {
        access_record_write_journal(record, &line);
        byte_buffer_append_text(&line, "\n");
    } else {
        access_record_write_json(record, &line);
    }
    if (line.failed)
        outbox_count_lost(log->outbox);
    else
        outbox_put(log->outbox, line.data, line.length);
    byte_buffer_finish(&line);
}

void access_log_reopen(struct access_log *log) {
    if (log == NULL || log->path == NULL)
        return;
    atomic_store(&log->wants_reopen, true);
    outbox_wake(log->outbox);
}

uint64_t access_log_num_lost(struct access_log *log) {
    return log != NULL ? outbox_num_lost(log->outbox) : 0;
}

/* A thread that does not end in time keeps the log, and the process ends with it. */
void access_log_close(struct access_log *log) {
    if (log != NULL && outbox_destroy(log->outbox, CLOSE_MS))
        free_log(log);
}
