#include "server/telemetry/trace.h"

#include "config/base/log.h"
#include "config/base/random_id.h"
#include "config/json/json_write.h"
#include "server/net/http_client.h"
#include "server/process/outbox.h"
#include "server/telemetry/access_log.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- Whose trace --- */

/* VERSION-TRACE-PARENT-FLAGS */
#define VERSION_AT 0
#define TRACE_AT 3
#define PARENT_AT (TRACE_AT + TRACE_ID_DIGITS + 1)
#define FLAGS_AT (PARENT_AT + SPAN_ID_DIGITS + 1)
#define LENGTH (FLAGS_AT + 2)
#define FLAG_SAMPLED 1

static const char digits[] = "0123456789abcdef";

static bool is_part(const char *at, size_t length, char end) {
    return strspn(at, digits) == length && at[length] == end;
}

static bool is_zero(const char *at, size_t length) {
    return strspn(at, "0") >= length;
}

/* What follows belongs to versions to come, never to 00. */
static bool has_good_end(const char *text) {
    const char *end = text + LENGTH;
    return *end == '\0' || (*end == '-' && memcmp(text, "00", 2) != 0);
}

static bool is_good(const char *text) {
    return is_part(text + VERSION_AT, 2, '-') && memcmp(text, "ff", 2) != 0 &&
           is_part(text + TRACE_AT, TRACE_ID_DIGITS, '-') &&
           !is_zero(text + TRACE_AT, TRACE_ID_DIGITS) &&
           is_part(text + PARENT_AT, SPAN_ID_DIGITS, '-') &&
           !is_zero(text + PARENT_AT, SPAN_ID_DIGITS) && strspn(text + FLAGS_AT, digits) == 2 &&
           has_good_end(text);
}

void trace_context_read(const char *traceparent, struct trace_context *out) {
    *out = (struct trace_context){0};
    if (traceparent == NULL || !is_good(traceparent))
        return;
    memcpy(out->trace_id, traceparent + TRACE_AT, TRACE_ID_DIGITS);
    memcpy(out->parent_id, traceparent + PARENT_AT, SPAN_ID_DIGITS);
    out->is_sampled = (strchr(digits, traceparent[FLAGS_AT + 1]) - digits) & FLAG_SAMPLED;
}

int trace_context_begin(struct trace_context *out) {
    *out = (struct trace_context){.is_sampled = true};
    return random_id("", TRACE_ID_DIGITS, out->trace_id, sizeof(out->trace_id));
}

/* --- Spans --- */

/* An API call as a span of OpenTelemetry, in the JSON of OTLP (opentelemetry.io/docs/specs/otlp,
 * "JSON Protobuf Encoding"), with the name and the attributes of vLLM (vllm/tracing/utils.py,
 * SpanAttributes) and those of HTTP servers. */

#define SPAN_KIND_SERVER 2
#define STATUS_CODE_ERROR 2
#define NUMBER_CHARS 40

static void begin_attribute(struct byte_buffer *out, const char *key, const char *type) {
    json_write_begin_object(out);
    json_write_text_member(out, "key", key);
    json_write_key(out, "value");
    json_write_begin_object(out);
    json_write_key(out, type);
}

static void end_attribute(struct byte_buffer *out) {
    json_write_end_object(out);
    json_write_end_object(out);
}

/* Appends an attribute as an object of its list. */
static void write_text(struct byte_buffer *out, const char *key, const char *value) {
    if (value == NULL)
        return;
    begin_attribute(out, key, "stringValue");
    json_write_text(out, value);
    end_attribute(out);
}

/* 64-bit integers are strings in that JSON. */
static void write_integer_member(struct byte_buffer *out, const char *name, int64_t value) {
    char text[NUMBER_CHARS];
    snprintf(text, sizeof(text), "%" PRId64, value);
    json_write_text_member(out, name, text);
}

static void write_integer(struct byte_buffer *out, const char *key, int64_t value) {
    char text[NUMBER_CHARS];
    snprintf(text, sizeof(text), "%" PRId64, value);
    begin_attribute(out, key, "intValue");
    json_write_text(out, text);
    end_attribute(out);
}

static void write_double(struct byte_buffer *out, const char *key, double value) {
    char text[NUMBER_CHARS];
    snprintf(text, sizeof(text), "%.9g", value);
    begin_attribute(out, key, "doubleValue");
    json_write_raw(out, text);
    end_attribute(out);
}

/* What has not happened, at 0, is left out. */
static void write_seconds(struct byte_buffer *out, const char *key, int64_t from_ns,
                          int64_t to_ns) {
    if (from_ns > 0 && to_ns >= from_ns)
        write_double(out, key, (double)(to_ns - from_ns) * 1e-9);
}

static void write_call(struct byte_buffer *out, const struct access_record *record) {
    const struct api_call_summary *call = record->call;
    const struct sampling_params *params = call->params;
    write_text(out, "gen_ai.request.id", call->id);
    write_text(out, "gen_ai.response.model", call->model);
    write_double(out, "gen_ai.request.temperature", (double)params->settings.temperature);
    write_double(out, "gen_ai.request.top_p", (double)params->settings.top_p);
    write_integer(out, "gen_ai.request.max_tokens", params->max_tokens);
    write_integer(out, "gen_ai.request.n", params->num_choices);
    write_integer(out, "gen_ai.usage.num_sequences", call->num_choices);
    write_integer(out, "gen_ai.usage.prompt_tokens", call->prompt_tokens);
    write_integer(out, "gen_ai.usage.completion_tokens", call->completion_tokens);
    write_seconds(out, "gen_ai.latency.time_in_queue", call->arrival_ns, call->scheduled_ns);
    write_seconds(out, "gen_ai.latency.time_to_first_token", record->start_ns,
                  call->first_token_ns);
    write_seconds(out, "gen_ai.latency.e2e", record->start_ns, record->end_ns);
    write_seconds(out, "gen_ai.latency.time_in_model_prefill", call->scheduled_ns,
                  call->first_token_ns);
    write_seconds(out, "gen_ai.latency.time_in_model_decode", call->first_token_ns,
                  call->last_token_ns);
    write_seconds(out, "gen_ai.latency.time_in_model_inference", call->scheduled_ns,
                  call->last_token_ns);
}

/* Appends the span as an object. record->trace is set. span_id: SPAN_ID_DIGITS hexadecimal
 * digits. */
static void write_span(const struct access_record *record, const char *span_id,
                       struct byte_buffer *out) {
    json_write_begin_object(out);
    json_write_text_member(out, "traceId", record->trace->trace_id);
    json_write_text_member(out, "spanId", span_id);
    if (record->trace->parent_id[0] != '\0')
        json_write_text_member(out, "parentSpanId", record->trace->parent_id);
    json_write_text_member(out, "name", "llm_request");
    json_write_int_member(out, "kind", SPAN_KIND_SERVER);
    write_integer_member(out, "startTimeUnixNano",
                         record->time_ns - (record->end_ns - record->start_ns));
    write_integer_member(out, "endTimeUnixNano", record->time_ns);
    json_write_key(out, "attributes");
    json_write_begin_array(out);
    if (record->call != NULL)
        write_call(out, record);
    write_text(out, "http.request.method", record->method);
    write_text(out, "http.route", record->route);
    write_integer(out, "http.response.status_code", record->status);
    write_text(out, "error.type", record->error_code);
    json_write_end_array(out);
    if (record->status >= 500) {
        json_write_key(out, "status");
        json_write_begin_object(out);
        json_write_int_member(out, "code", STATUS_CODE_ERROR);
        json_write_end_object(out);
    }
    json_write_end_object(out);
}

/* --- The exporter --- */

/* The sizes of OpenTelemetry's own batch processor (its SDK's environment variables, OTEL_BSP_*),
 * but sooner sent. */
#define MAX_WAITING_SPANS 2048
#define MAX_WAITING_BYTES (TRACE_EXPORTER_MAX_BYTES / 4)
#define GATHER_MS 1000
#define SEND_MS 10000
#define MAX_ANSWER_BYTES ((size_t)64 << 10)
#define CLOSE_MS 2000

struct trace_exporter {
    struct http_url url;
    struct outbox *outbox;
    /* Of the outbox's thread: */
    struct http_client *client;
    bool is_failing;
};

static void write_scope(struct byte_buffer *out) {
    json_write_key(out, "scope");
    json_write_begin_object(out);
    json_write_text_member(out, "name", "quire");
    json_write_text_member(out, "version", QUIRE_VERSION);
    json_write_end_object(out);
}

static void write_resource(struct byte_buffer *out) {
    const char *name = getenv("OTEL_SERVICE_NAME");
    json_write_key(out, "resource");
    json_write_begin_object(out);
    json_write_key(out, "attributes");
    json_write_begin_array(out);
    write_text(out, "service.name", name != NULL && name[0] != '\0' ? name : "quire");
    write_text(out, "service.version", QUIRE_VERSION);
    json_write_end_array(out);
    json_write_end_object(out);
}

/* An ExportTraceServiceRequest. spans: objects with commas between them. */
static void write_request(const struct byte_buffer *spans, struct byte_buffer *out) {
    json_write_begin_object(out);
    json_write_key(out, "resourceSpans");
    json_write_begin_array(out);
    json_write_begin_object(out);
    write_resource(out);
    json_write_key(out, "scopeSpans");
    json_write_begin_array(out);
    json_write_begin_object(out);
    write_scope(out);
    json_write_array_member(out, "spans", spans);
    json_write_end_object(out);
    json_write_end_array(out);
    json_write_end_object(out);
    json_write_end_array(out);
    json_write_end_object(out);
}

static int send_request(const struct trace_exporter *exporter, const struct byte_buffer *body,
                        struct error *err) {
    const struct http_client_request request = {
        .url = &exporter->url,
        .path = exporter->url.path[0] != '\0' ? exporter->url.path : "/v1/traces",
        .fields = {"Content-Type: application/json"},
        .body = body->data,
        .body_bytes = body->length,
        .timeout_ms = SEND_MS,
        .max_answer_bytes = MAX_ANSWER_BYTES,
    };
    struct http_answer answer;
    if (http_client_send(exporter->client, &request, &answer, err) != 0)
        return -1;
    byte_buffer_finish(&answer.body);
    return answer.status / 100 == 2
               ? 0
               : error_set(err, ERROR_IO, "%.300s: status %d", exporter->url.origin, answer.status);
}

static int send_spans(const struct trace_exporter *exporter, const struct byte_buffer *items,
                      struct error *err) {
    struct byte_buffer spans = *items, body = {0};
    spans.length--; /* the last comma */
    write_request(&spans, &body);
    int status = body.failed ? error_set(err, ERROR_MEMORY, "no memory for the spans")
                             : send_request(exporter, &body, err);
    byte_buffer_finish(&body);
    return status;
}

static int32_t deliver(void *context, const struct byte_buffer *items, int32_t num_items) {
    struct trace_exporter *exporter = context;
    struct error err;
    if (num_items == 0)
        return 0;
    bool is_failing = send_spans(exporter, items, &err) != 0;
    if (is_failing && !exporter->is_failing)
        log_warning("otlp-traces-endpoint: %s; spans are lost until it accepts them", err.message);
    exporter->is_failing = is_failing;
    return is_failing ? num_items : 0;
}

static void destroy(struct trace_exporter *exporter) {
    http_client_destroy(exporter->client);
    free(exporter);
}

static int start(struct trace_exporter *exporter, const char *endpoint, struct error *err) {
    struct error why;
    const struct outbox_config config = {.name = "quire-traces",
                                         .max_bytes = MAX_WAITING_BYTES,
                                         .max_items = MAX_WAITING_SPANS,
                                         .gather_ms = GATHER_MS,
                                         .deliver = deliver,
                                         .context = exporter};
    if (http_url_parse(endpoint, &exporter->url, &why) != 0)
        return error_set(err, ERROR_CONFIG, "otlp-traces-endpoint %.200s: %s", endpoint,
                         why.message);
    exporter->client = http_client_create();
    if (exporter->client == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for the traces");
    return outbox_create(&config, &exporter->outbox, err);
}

int trace_exporter_open(const char *endpoint, struct trace_exporter **out, struct error *err) {
    *out = NULL;
    if (endpoint == NULL)
        return 0;
    struct trace_exporter *exporter = calloc(1, sizeof(*exporter));
    if (exporter == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for the traces");
    if (start(exporter, endpoint, err) != 0) {
        destroy(exporter);
        return -1;
    }
    *out = exporter;
    return 0;
}

void trace_exporter_put(struct trace_exporter *exporter, const struct access_record *record) {
    char span_id[SPAN_ID_DIGITS + 1];
    struct byte_buffer span = {0};
    if (exporter == NULL || record->trace == NULL || !record->trace->is_sampled)
        return;
    if (random_id("", SPAN_ID_DIGITS, span_id, sizeof(span_id)) == 0)
        write_span(record, span_id, &span);
    byte_buffer_append_text(&span, ",");
    if (span.failed || span.length == 1)
        outbox_count_lost(exporter->outbox);
    else
        outbox_put(exporter->outbox, span.data, span.length);
    byte_buffer_finish(&span);
}

uint64_t trace_exporter_num_lost(struct trace_exporter *exporter) {
    return exporter != NULL ? outbox_num_lost(exporter->outbox) : 0;
}

/* A thread that does not end in time keeps the exporter, and the process ends with it. */
void trace_exporter_close(struct trace_exporter *exporter) {
    if (exporter != NULL && outbox_destroy(exporter->outbox, CLOSE_MS))
        destroy(exporter);
}
