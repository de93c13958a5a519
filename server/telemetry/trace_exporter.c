#include "server/telemetry/trace_exporter.h"

#include "config/base/random_id.h"
#include "config/base/log.h"
#include "server/net/http_client.h"
#include "config/json/json_write.h"
#include "server/process/outbox.h"
#include "server/telemetry/trace_span.h"

#include <stdlib.h>

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
    trace_span_write_text(out, "service.name", name != NULL && name[0] != '\0' ? name : "quire");
    trace_span_write_text(out, "service.version", QUIRE_VERSION);
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
        log_warning("otlp-traces-endpoint: %s; spans are lost until it takes them", err.message);
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
        trace_span_write(record, span_id, &span);
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
