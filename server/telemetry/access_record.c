#include "server/telemetry/access_record.h"

#include "config/base/check.h"
#include "config/base/clock.h"
#include "config/json/json_write.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

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

/* What ended the first choice, as `stop_reason` of vLLM's answers has it. */
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
