#include "server/client/chat/completion_stream.h"

#include "config/json/json_field.h"
#include "config/json/json_integer.h"
#include "config/json/json_parse.h"

#include <stdio.h>
#include <string.h>

static struct text text_of(const cJSON *item) {
    if (!cJSON_IsString(item))
        return (struct text){"", 0};
    return (struct text){item->valuestring, strlen(item->valuestring)};
}

static int64_t count_of(const cJSON *usage, const char *name) {
    int64_t count;
    const cJSON *item = json_member(usage, name);
    return cJSON_IsNumber(item) && json_integer_read(item, &count) && count >= 0 ? count : -1;
}

/* A chat's text is in its delta, a completion's in the choice. */
static void read_choice(const cJSON *choice, struct completion_event *event) {
    const cJSON *delta = json_member(choice, "delta");
    event->text = text_of(json_member(delta != NULL ? delta : choice, delta ? "content" : "text"));
    event->reasoning = text_of(json_member(delta, "reasoning_content"));
    if (event->reasoning.length == 0)
        event->reasoning = text_of(json_member(delta, "reasoning"));
    const cJSON *reason = json_member(choice, "finish_reason");
    event->finish_reason = cJSON_IsString(reason) ? reason->valuestring : NULL;
}

static void read_chunk(const cJSON *chunk, struct completion_event *event) {
    const cJSON *choices = json_member(chunk, "choices"), *usage = json_member(chunk, "usage");
    *event = (struct completion_event){.prompt_tokens = count_of(usage, "prompt_tokens"),
                                       .completion_tokens = count_of(usage, "completion_tokens")};
    if (cJSON_IsArray(choices) && choices->child != NULL)
        read_choice(choices->child, event);
}

/* The data of one event. */
static int take_event(struct completion_stream *stream, struct error *err) {
    struct api_error why;
    struct completion_event event;
    const struct text data = {stream->data.data, stream->data.length};
    if (stream->is_done || text_is(data, "[DONE]")) {
        stream->is_done = true;
        return 0;
    }
    cJSON *chunk = json_parse(data.data, data.length, &why);
    if (chunk == NULL)
        return error_set(err, ERROR_SYNTAX, "an event of the stream is no JSON object");
    const cJSON *problem = json_given_member(chunk, "error");
    int status = 0;
    if (problem != NULL) {
        struct text message = text_of(json_member(problem, "message"));
        status = error_set(err, ERROR_IO, "%s", message.length > 0 ? message.data : "an error");
    } else {
        read_chunk(chunk, &event);
        stream->on_event(stream->context, &event);
    }
    cJSON_Delete(chunk);
    return status;
}

/* Fields other than data, and comments, say nothing here. */
static int take_line(struct completion_stream *stream, struct error *err) {
    const char *line = stream->line.data;
    size_t length = stream->line.length;
    if (length > 0 && line[length - 1] == '\r')
        length--;
    if (length == 0) {
        int status = stream->data.length > 0 ? take_event(stream, err) : 0;
        byte_buffer_clear(&stream->data);
        return status;
    }
    if (length < 5 || memcmp(line, "data:", 5) != 0)
        return 0;
    size_t skipped = length > 5 && line[5] == ' ' ? 6 : 5;
    if (stream->data.length > 0)
        byte_buffer_append_text(&stream->data, "\n");
    byte_buffer_append(&stream->data, line + skipped, length - skipped);
    return 0;
}

int completion_stream_take(struct completion_stream *stream, const char *data, size_t length,
                           struct error *err) {
    stream->line.max_length = stream->data.max_length = COMPLETION_STREAM_MAX_EVENT_BYTES;
    while (length > 0) {
        const char *end = memchr(data, '\n', length);
        size_t taken = end != NULL ? (size_t)(end - data) : length;
        byte_buffer_append(&stream->line, data, taken);
        if (end != NULL && !stream->line.failed) {
            if (take_line(stream, err) != 0)
                return -1;
            byte_buffer_clear(&stream->line);
            taken++;
        }
        if (stream->line.failed || stream->data.failed)
            return error_set(err, ERROR_SYNTAX, "an event of the stream is longer than %zu bytes",
                             COMPLETION_STREAM_MAX_EVENT_BYTES);
        data += taken;
        length -= taken;
    }
    return 0;
}

void completion_stream_finish(struct completion_stream *stream) {
    byte_buffer_finish(&stream->line);
    byte_buffer_finish(&stream->data);
}

/* error_set has '?' for control characters. */
static void set_message(struct completion_refusal *out, const char *text, size_t length) {
    struct error err;
    int shown = length < sizeof(out->message) ? (int)length : (int)sizeof(out->message) - 1;
    error_set(&err, ERROR_IO, "%.*s", shown, text);
    snprintf(out->message, sizeof(out->message), "%.*s", shown, err.message);
}

void completion_refusal_read(const struct byte_buffer *body, struct completion_refusal *out) {
    struct api_error why;
    *out = (struct completion_refusal){0};
    cJSON *answer = body->length > 0 ? json_parse(body->data, body->length, &why) : NULL;
    const cJSON *problem = json_member(answer, "error");
    struct text message = text_of(json_member(problem, "message"));
    struct text code = text_of(json_member(problem, "code"));
    if (message.length > 0)
        set_message(out, message.data, message.length);
    else if (body->length > 0)
        set_message(out, body->data, strnlen(body->data, body->length));
    if (code.length < sizeof(out->code))
        memcpy(out->code, code.data, code.length);
    cJSON_Delete(answer);
}
