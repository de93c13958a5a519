#include "server/telemetry/access_log.h"

#include "config/base/check.h"
#include "config/base/clock.h"
#include "config/base/log.h"
#include "config/json/json_write.h"
#include "server/process/outbox.h"
#include "server/process/service.h"
#include "server/telemetry/trace.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* --- Records --- */

#define MAX_FIELDS 32
#define NUMBER_CHARS 40

/* A text or, where that is NULL, a number as it is written. */
struct field {
    const char *name, *text;
    char number[NUMBER_CHARS];
};

struct fields {
    int count;
    struct field items[MAX_FIELDS];
};

static struct field *add(struct fields *fields, const char *name, const char *text) {
    CHECK(fields->count < MAX_FIELDS);
    struct field *field = &fields->items[fields->count++];
    field->name = name;
    field->text = text;
    return field;
}

static void add_text(struct fields *fields, const char *name, const char *text) {
    if (text != NULL)
        add(fields, name, text);
}

static void add_number(struct fields *fields, const char *name, int64_t value) {
    snprintf(add(fields, name, NULL)->number, NUMBER_CHARS, "%" PRId64, value);
}

/* What has not happened, at 0, is left out. */
static void add_seconds(struct fields *fields, const char *name, int64_t from_ns, int64_t to_ns) {
    if (from_ns > 0 && to_ns >= from_ns)
        snprintf(add(fields, name, NULL)->number, NUMBER_CHARS, "%.6f",
                 (double)(to_ns - from_ns) * 1e-9);
}

static void add_call(struct fields *fields, const struct access_record *record) {
    const struct api_call_summary *call = record->call;
    add_text(fields, "id", call->id);
    add_text(fields, "model", call->model);
    snprintf(add(fields, "stream", NULL)->number, NUMBER_CHARS, "%s",
             call->is_stream ? "true" : "false");
    add_number(fields, "choices", call->num_choices);
    add_number(fields, "prompt_tokens", call->prompt_tokens);
    add_number(fields, "cached_tokens", call->cached_tokens);
    add_number(fields, "completion_tokens", call->completion_tokens);
    add_text(fields, "finish_reason", call->finish_reason);
    add_seconds(fields, "queue_seconds", call->arrival_ns, call->scheduled_ns);
    add_seconds(fields, "first_token_seconds", record->start_ns, call->first_token_ns);
}

static void write_time(int64_t time_ms, char *out, size_t capacity) {
    time_t seconds = (time_t)(time_ms / 1000);
    struct tm utc;
    gmtime_r(&seconds, &utc);
    size_t length = strftime(out, capacity, "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(out + length, capacity - length, ".%03dZ", (int)(time_ms % 1000));
}

/* All that is short and of one line. */
static void list_fields(const struct access_record *record, struct fields *fields) {
    fields->count = 0;
    add_text(fields, "request_id", record->request_id);
    if (record->trace != NULL)
        add_text(fields, "trace_id", record->trace->trace_id);
    add_text(fields, "key", record->key);
    add_text(fields, "client", record->client);
    add_text(fields, "method", record->method);
    add_text(fields, "route", record->route);
    add_number(fields, "status", record->status);
    add_text(fields, "error", record->error_code);
    if (record->call != NULL)
        add_call(fields, record);
    add_seconds(fields, "total_seconds", record->start_ns, record->end_ns);
    add_number(fields, "received_bytes", (int64_t)record->received_bytes);
    add_number(fields, "sent_bytes", (int64_t)record->sent_bytes);
}

/* What ended the first choice, like `stop_reason` of vLLM's answers. */
static void write_stop_reason(const struct api_call_summary *call, struct byte_buffer *out) {
    if (call->stop_text.data == NULL && call->stop_token < 0)
        return;
    json_write_key(out, "stop_reason");
    if (call->stop_text.data != NULL)
        json_write_string(out, call->stop_text.data, call->stop_text.length);
    else
        json_write_int(out, call->stop_token);
}

static void write_json(const struct access_record *record, const struct fields *fields,
                       struct byte_buffer *out) {
    char time_text[NUMBER_CHARS];
    write_time(record->time_ns / CLOCK_NS_PER_MS, time_text, sizeof(time_text));
    json_write_begin_object(out);
    json_write_text_member(out, "time", time_text);
    for (const struct field *field = fields->items; field < fields->items + fields->count; field++)
        if (field->text != NULL)
            json_write_text_member(out, field->name, field->text);
        else
            json_write_raw_member(out, field->name, field->number);
    if (record->call != NULL)
        write_stop_reason(record->call, out);
    if (record->body != NULL) {
        json_write_key(out, "body");
        json_write_string(out, record->body, record->body_bytes);
    }
    json_write_end_object(out);
    byte_buffer_append_text(out, "\n");
}

void access_record_write_json(const struct access_record *record, struct byte_buffer *out) {
    struct fields fields;
    list_fields(record, &fields);
    write_json(record, &fields, out);
}

static void write_journal_name(const char *name, struct byte_buffer *out) {
    byte_buffer_append_text(out, "QUIRE_");
    for (; *name != '\0'; name++) {
        char letter = (char)toupper((unsigned char)*name);
        byte_buffer_append(out, &letter, 1);
    }
    byte_buffer_append_text(out, "=");
}

void access_record_write_journal(const struct access_record *record, struct byte_buffer *out) {
    struct fields fields;
    struct byte_buffer line = {0};
    list_fields(record, &fields);
    write_json(record, &fields, &line);
    byte_buffer_append_text(out, "PRIORITY=6\nMESSAGE=");
    byte_buffer_append(out, line.data, line.length);
    out->failed = out->failed || line.failed;
    byte_buffer_finish(&line);
    for (int i = 0; i < fields.count; i++) {
        const struct field *field = &fields.items[i];
        write_journal_name(field->name, out);
        byte_buffer_append_text(out, field->text != NULL ? field->text : field->number);
        byte_buffer_append_text(out, "\n");
    }
}

/* --- The log --- */

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
                  error != 0 ? strerror(error) : "nothing reads it");
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
        log_error("access-log %.400s: %s; the old file stays in use", log->path, strerror(errno));
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
