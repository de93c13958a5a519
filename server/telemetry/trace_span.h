/* An API call as a span of OpenTelemetry, in the JSON of OTLP (opentelemetry.io/docs/specs/otlp,
 * "JSON Protobuf Encoding"), with the name and the attributes of vLLM (vllm/tracing/utils.py,
 * SpanAttributes) and those of HTTP servers. */
#ifndef QUIRE_SERVER_TRACE_SPAN_H
#define QUIRE_SERVER_TRACE_SPAN_H

#include "server/telemetry/access_record.h"

/* Appends the span as an object. record->trace is set. span_id: SPAN_ID_DIGITS hexadecimal
 * digits. */
void trace_span_write(const struct access_record *record, const char *span_id,
                      struct byte_buffer *out);
/* Appends an attribute as an object of its list. */
void trace_span_write_text(struct byte_buffer *out, const char *key, const char *value);

#endif
