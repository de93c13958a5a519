/* The access log: a line of JSON for each HTTP request, in a file, on stdout or, where stdout is
 * the systemd journal's and the program is built with libsystemd, as an entry with fields there.
 * Written by a thread of its own (outbox.h): who writes it down never waits, and what cannot be
 * written for long is lost and counted. */
#ifndef QUIRE_SERVER_TELEMETRY_ACCESS_LOG_H
#define QUIRE_SERVER_TELEMETRY_ACCESS_LOG_H

#include "config/base/byte_buffer.h"
#include "config/base/error.h"
#include "server/api/call/api_call_summary.h"

#include <stdbool.h>
#include <stdint.h>

struct trace_context;

/* nginx's number for a client that was gone before it had an answer. */
#define ACCESS_CLIENT_GONE 499

/* What it says of one HTTP request and its answer. Texts are the caller's; NULL: not known, and
 * left out. */
struct access_record {
    int64_t start_ns, end_ns; /* CLOCK_MONOTONIC: the header was there; all was sent, or it broke */
    int64_t time_ns;          /* of end_ns, since 1970 */
    const struct trace_context *trace; /* NULL: none */
    const char *request_id;
    const char *key;    /* its name; NULL: none was needed, or it was none of ours */
    const char *client; /* address */
    const char *method;
    const char *route;      /* as the list of routes has it: the path without what it names */
    int status;             /* as sent, or ACCESS_CLIENT_GONE */
    const char *error_code; /* of the answer, or of what broke it */
    uint64_t received_bytes, sent_bytes; /* of the bodies */
    const struct api_call_summary *call; /* NULL: it made none, or was refused */
    const char *body;                    /* its beginning, with --log-prompts alone */
    size_t body_bytes;
};

/* Appends the record as a line of JSON. Times are seconds. */
void access_record_write_json(const struct access_record *record, struct byte_buffer *out);

/* Appends the record as the fields of a journal entry, NAME=VALUE and a line feed each: MESSAGE,
 * which is the line of JSON, and what is short of it as QUIRE_..., to search by. */
void access_record_write_journal(const struct access_record *record, struct byte_buffer *out);

/* What waits and what is being written, at most. */
#define ACCESS_LOG_MAX_BYTES ((size_t)8 << 20)

struct access_log;

/* target: the path of a file, which is appended to and made with mode 0640, "-" for stdout, or
 * "none": *out is then NULL. ERROR_CONFIG when the file cannot be opened. */
int access_log_open(const char *target, struct access_log **out, struct error *err);
/* These accept NULL, for no log. */
void access_log_write(struct access_log *log, const struct access_record *record);
/* Has the file opened again by its name, for programs that move it away (logrotate). One that
 * cannot be opened is logged, and the old one stays. */
void access_log_reopen(struct access_log *log);
/* Returns how many lines were lost since the start. */
uint64_t access_log_num_lost(struct access_log *log);
/* Writes down what waits, as far as that is possible soon. */
void access_log_close(struct access_log *log);

#endif
