#include "server/telemetry/trace_span.h"

#include "config/json/json_write.h"

#include <inttypes.h>
#include <stdio.h>

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

void trace_span_write_text(struct byte_buffer *out, const char *key, const char *value) {
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
    trace_span_write_text(out, "gen_ai.request.id", call->id);
    trace_span_write_text(out, "gen_ai.response.model", call->model);
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

void trace_span_write(const struct access_record *record, const char *span_id,
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
    trace_span_write_text(out, "http.request.method", record->method);
    trace_span_write_text(out, "http.route", record->route);
    write_integer(out, "http.response.status_code", record->status);
    trace_span_write_text(out, "error.type", record->error_code);
    json_write_end_array(out);
    if (record->status >= 500) {
        json_write_key(out, "status");
        json_write_begin_object(out);
        json_write_int_member(out, "code", STATUS_CODE_ERROR);
        json_write_end_object(out);
    }
    json_write_end_object(out);
}
