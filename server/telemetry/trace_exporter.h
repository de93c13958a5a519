/* Sends spans of API calls to a collector of OpenTelemetry, by OTLP over HTTP with JSON, from a
 * thread of its own (outbox.h). Nobody waits for it: spans that the collector does not take are
 * lost and counted; nothing is sent twice. */
#ifndef QUIRE_SERVER_TRACE_EXPORTER_H
#define QUIRE_SERVER_TRACE_EXPORTER_H

#include "config/base/error.h"
#include "server/telemetry/access_record.h"

#include <stdint.h>

/* What waits and what is being sent, twice: as spans and as the request's body; at most. */
#define TRACE_EXPORTER_MAX_BYTES ((size_t)12 << 20)

struct trace_exporter;

/* endpoint: an http or https URL, whose path is /v1/traces if it has none; NULL: *out is NULL, and
 * nothing is sent. ERROR_CONFIG for another URL. To be called before the process has other threads
 * (http_client.h). The service's name is OTEL_SERVICE_NAME's, or "quire". */
int trace_exporter_open(const char *endpoint, struct trace_exporter **out, struct error *err);
/* These accept NULL. */
/* Takes the record if its trace is to be recorded. */
void trace_exporter_put(struct trace_exporter *exporter, const struct access_record *record);
/* Returns how many spans were lost since the start. */
uint64_t trace_exporter_num_lost(struct trace_exporter *exporter);
/* Sends what waits, as far as that is possible soon. */
void trace_exporter_close(struct trace_exporter *exporter);

#endif
