/* The access log: a line of JSON for each HTTP request, in a file, on stdout or, if stdout is the
 * systemd journal and the program is built with libsystemd, as a journal entry with fields. It is
 * written by a separate thread (outbox.h): logging never blocks, and lines that cannot be written
 * for long are lost and counted. */
#ifndef QUIRE_SERVER_TELEMETRY_ACCESS_LOG_H
#define QUIRE_SERVER_TELEMETRY_ACCESS_LOG_H

#include "config/base/byte_buffer.h"
#include "config/base/error.h"
#include "server/api/call/api_call_summary.h"

#include <stdbool.h>
#include <stdint.h>

struct trace_context;

/* nginx's status for a client that disconnected before its answer. */
#define ACCESS_CLIENT_GONE 499

/* The record of one HTTP request and its answer. The caller owns the texts; NULL: unknown, and left
 * out. */
struct access_record {
    int64_t start_ns,
        end_ns;      /* CLOCK_MONOTONIC: header received; everything sent, or connection lost */
    int64_t time_ns; /* of end_ns, since 1970 */
    const struct trace_context *trace; /* NULL: none */
    const char *request_id;
    const char *key;    /* its name; NULL: none was needed, or it was not one of ours */
    const char *client; /* address */
    const char *method;
    const char *route;                   /* the route's path pattern, without its arguments */
    int status;                          /* as sent, or ACCESS_CLIENT_GONE */
    const char *error_code;              /* of the answer, or of what interrupted it */
    uint64_t received_bytes, sent_bytes; /* of the bodies */
    const struct api_call_summary *call; /* NULL: no call, or refused */
    const char *body;                    /* its beginning, only with --log-prompts */
    size_t body_bytes;
};

/* Appends the record as a line of JSON. Times are seconds. */
void access_record_write_json(const struct access_record *record, struct byte_buffer *out);

/* Appends the record as the fields of a journal entry, NAME=VALUE and a line feed each: MESSAGE,
 * which is the line of JSON, and its short fields as QUIRE_..., for searching. */
void access_record_write_journal(const struct access_record *record, struct byte_buffer *out);

/* Maximum bytes waiting and being written. */
#define ACCESS_LOG_MAX_BYTES ((size_t)8 << 20)

struct access_log;

/* target: the path of a file, which is appended to or created with mode 0640, "-" for stdout, or
 * "none": *out is then NULL. ERROR_CONFIG when the file cannot be opened. */
int access_log_open(const char *target, struct access_log **out, struct error *err);
/* These accept NULL, for no log. */
void access_log_write(struct access_log *log, const struct access_record *record);
/* Makes the thread reopen the file by its name, for programs that move it away (logrotate). If it
 * cannot be opened, that is logged and the old one is kept. */
void access_log_reopen(struct access_log *log);
/* Returns how many lines were lost since the start. */
uint64_t access_log_num_lost(struct access_log *log);
/* Writes what waits, as far as possible within a short time. */
void access_log_close(struct access_log *log);

#endif
