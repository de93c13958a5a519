/* What the access log says of one HTTP request and its answer. */
#ifndef QUIRE_SERVER_ACCESS_RECORD_H
#define QUIRE_SERVER_ACCESS_RECORD_H

#include "config/base/byte_buffer.h"
#include "server/api/call/api_call_summary.h"
#include "server/telemetry/trace_context.h"

#include <stdbool.h>
#include <stdint.h>

/* nginx's number for a client that was gone before it had an answer. */
#define ACCESS_CLIENT_GONE 499

/* Texts are the caller's; NULL: not known, and left out. */
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

#endif
