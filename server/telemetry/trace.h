/* Traces: the trace that a request belongs to, and the spans of API calls for a collector. */
#ifndef QUIRE_SERVER_TELEMETRY_TRACE_H
#define QUIRE_SERVER_TELEMETRY_TRACE_H

#include "config/base/error.h"

#include <stdbool.h>
#include <stdint.h>

#define TRACE_ID_DIGITS 32
#define SPAN_ID_DIGITS 16

/* The trace that a request belongs to: the field `traceparent` of W3C Trace Context
 * (w3.org/TR/trace-context, section 3.2). */
struct trace_context {
    char trace_id[TRACE_ID_DIGITS + 1]; /* lower-case hexadecimal; "": no trace */
    char parent_id[SPAN_ID_DIGITS + 1]; /* the caller's span; "": this one is the first */
    bool is_sampled;                    /* the caller may have recorded its span */
};

/* Reads the field's value; NULL: absent. An invalid one counts as absent, as the standard says;
 * from an unknown version, the parts of version 00 are used. */
void trace_context_read(const char *traceparent, struct trace_context *out);

/* Starts a new trace that is recorded. Returns -1 when the kernel provides no random bytes. */
int trace_context_begin(struct trace_context *out);

/* --- The exporter --- */

/* Sends spans of API calls to a collector of OpenTelemetry, by OTLP over HTTP with JSON, from a
 * separate thread (outbox.h). Nobody waits for it: spans that the collector does not accept are
 * lost and counted; nothing is sent twice. */

/* Maximum bytes waiting and being sent, counted twice: as spans and as the request's body. */
#define TRACE_EXPORTER_MAX_BYTES ((size_t)12 << 20)

struct access_record;
struct trace_exporter;

/* endpoint: an http or https URL, whose path is /v1/traces if it has none; NULL: *out is NULL, and
 * nothing is sent. Fails with ERROR_CONFIG for any other URL. Must be called before the process has
 * other threads (http_client.h). The service's name is that of OTEL_SERVICE_NAME, or "quire". */
int trace_exporter_open(const char *endpoint, struct trace_exporter **out, struct error *err);
/* These accept NULL. */
/* Takes the record if its trace is sampled. */
void trace_exporter_put(struct trace_exporter *exporter, const struct access_record *record);
/* Returns how many spans were lost since the start. */
uint64_t trace_exporter_num_lost(struct trace_exporter *exporter);
/* Sends what waits, as far as possible within a short time. */
void trace_exporter_close(struct trace_exporter *exporter);

#endif
