#include "server/client/chat/chat_client.h"

#include "config/base/check.h"
#include "config/base/clock.h"
#include "config/json/json_field.h"
#include "config/json/json_integer.h"
#include "config/json/json_parse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- Streams --- */

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
        return error_set(err, ERROR_SYNTAX, "an event of the stream is not a JSON object");
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

/* --- The client --- */

#define CONNECT_MS 10000
#define MAX_MODELS_BYTES ((size_t)16 << 20)
#define MAX_REFUSAL_BYTES ((size_t)1 << 20)

/* As OpenAI's SDKs take it, with /v1, or as the server prints it. */
static void trim_path(struct http_url *url) {
    size_t length = strlen(url->path);
    while (length > 0 && url->path[length - 1] == '/')
        length--;
    if (length >= 3 && memcmp(url->path + length - 3, "/v1", 3) == 0)
        length -= 3;
    url->path[length] = '\0';
}

int chat_client_open(const char *url, const char *socket_path, const char *key_variable,
                     struct chat_client *out, struct error *err) {
    struct error why;
    *out = (struct chat_client){.socket_path = socket_path, .key_variable = key_variable};
    if (http_url_parse(url, &out->url, &why) != 0)
        return error_set(err, ERROR_CONFIG, "%.200s: %s", url, why.message);
    trim_path(&out->url);
    if (http_client_key_field(key_variable, out->key_field, err) != 0)
        return -1;
    out->http = http_client_create();
    out->list_http = http_client_create();
    return out->http != NULL && out->list_http != NULL
               ? 0
               : error_set(err, ERROR_MEMORY, "no memory for a client");
}

void chat_client_close(struct chat_client *client) {
    http_client_destroy(client->http);
    http_client_destroy(client->list_http);
    explicit_bzero(client->key_field, sizeof(client->key_field));
    client->http = client->list_http = NULL;
}

static const char *key_of(const struct chat_client *client) {
    return client->key_field[0] != '\0' ? client->key_field : NULL;
}

/* Writes one line about an invalid answer. */
static void explain(const struct chat_client *client, const struct http_answer *answer,
                    const struct completion_refusal *refusal, char *out, size_t capacity) {
    if (answer->status == 401 && key_of(client) == NULL)
        snprintf(out, capacity, "the server wants an API key (401): set %.100s to it",
                 client->key_variable);
    else if (answer->status == 401)
        snprintf(out, capacity, "the server refuses the API key of %.100s (401)",
                 client->key_variable);
    else if (answer->retry_after_s > 0)
        snprintf(out, capacity, "%s (%d); try again in %lld s", refusal->message, answer->status,
                 (long long)answer->retry_after_s);
    else
        snprintf(out, capacity, "%s (%d)",
                 refusal->message[0] != '\0' ? refusal->message : "no answer", answer->status);
}

/* Returns whether the entry of the list is a model. */
static bool read_model(const cJSON *entry, struct chat_model *out) {
    const cJSON *id = json_member(entry, "id"), *length = json_member(entry, "max_model_len");
    struct text status = text_of(json_member(json_member(entry, "status"), "value"));
    if (!cJSON_IsString(id) || id->valuestring[0] == '\0' ||
        strlen(id->valuestring) >= sizeof(out->name))
        return false;
    strcpy(out->name, id->valuestring);
    snprintf(out->status, sizeof(out->status), "%s", status.data);
    if (!cJSON_IsNumber(length) || !json_integer_read(length, &out->max_model_len))
        out->max_model_len = 0;
    return true;
}

static int read_models(const struct chat_client *client, const struct byte_buffer *body,
                       struct chat_models *out, struct error *err) {
    struct api_error why;
    cJSON *list = json_parse(body->data != NULL ? body->data : "", body->length, &why);
    const cJSON *models = json_member(list, "data"), *entry;
    if (cJSON_IsArray(models))
        out->items = calloc((size_t)cJSON_GetArraySize(models) + 1, sizeof(*out->items));
    if (out->items != NULL)
        cJSON_ArrayForEach(entry, models) out->count += read_model(entry, &out->items[out->count]);
    cJSON_Delete(list);
    return out->count > 0 ? 0
                          : error_set(err, ERROR_IO, "%.200s: its /v1/models lists no model",
                                      client->url.origin);
}

int chat_client_list(struct chat_client *client, int64_t timeout_ms, struct chat_models *out,
                     struct error *err) {
    char path[HTTP_URL_BYTES + 32], why[512];
    struct http_answer answer;
    struct completion_refusal refusal;
    *out = (struct chat_models){0};
    snprintf(path, sizeof(path), "%s/v1/models", client->url.path);
    const struct http_client_request request = {.url = &client->url,
                                                .path = path,
                                                .socket_path = client->socket_path,
                                                .fields = {key_of(client)},
                                                .timeout_ms = timeout_ms,
                                                .max_answer_bytes = MAX_MODELS_BYTES};
    if (http_client_send(client->list_http, &request, &answer, err) != 0)
        return -1;
    int status;
    if (answer.status == 200) {
        status = read_models(client, &answer.body, out, err);
    } else {
        completion_refusal_read(&answer.body, &refusal);
        explain(client, &answer, &refusal, why, sizeof(why));
        status = error_set(err, ERROR_IO, "%.200s: %.280s", client->url.origin, why);
    }
    byte_buffer_finish(&answer.body);
    if (status != 0)
        free(out->items);
    return status;
}

/* Returns the index, or -1. */
static int choose(const struct chat_models *models, const char *name, struct error *err) {
    int found = name == NULL ? 0 : -1, num_found = 0;
    for (int i = 0; i < models->count && name != NULL; i++) {
        if (strcmp(models->items[i].name, name) == 0)
            return i;
        if (strstr(models->items[i].name, name) == NULL)
            continue;
        found = i;
        num_found++;
    }
    if (num_found > 1)
        return error_set(err, ERROR_CONFIG, "%d models have %.64s in their names", num_found, name);
    if (found < 0)
        error_set(err, ERROR_IO, "the server has no model %.64s", name);
    return found;
}

int chat_client_find_model(struct chat_client *client, const char *name, struct error *err) {
    struct chat_models models;
    if (chat_client_list(client, CHAT_LIST_MS, &models, err) != 0)
        return -1;
    int chosen = choose(&models, name, err);
    if (chosen >= 0) {
        const struct chat_model *model = &models.items[chosen];
        strcpy(client->model, model->name);
        client->max_model_len = model->max_model_len;
        client->has_states = model->status[0] != '\0';
        client->num_models = models.count;
    }
    free(models.items);
    return chosen >= 0 ? 0 : -1;
}

/* An answer while it comes. */
struct asking {
    const struct chat_sink *sink;
    struct chat_answer *answer;
    struct completion_stream stream;
    int64_t num_events;
    struct error err; /* set if the stream is broken */
    bool is_broken;
};

static void take_text(struct asking *asking, bool is_reasoning, struct text text) {
    if (text.length == 0)
        return;
    if (!is_reasoning)
        byte_buffer_append(&asking->answer->content, text.data, text.length);
    asking->sink->write(asking->sink->context, is_reasoning, text.data, text.length);
}

static void on_event(void *context, const struct completion_event *event) {
    struct asking *asking = context;
    struct chat_answer *answer = asking->answer;
    if (event->reasoning.length > 0 || event->text.length > 0) {
        answer->last_ns = clock_now_ns();
        answer->first_ns = answer->first_ns != 0 ? answer->first_ns : answer->last_ns;
        asking->num_events++;
    }
    take_text(asking, true, event->reasoning);
    take_text(asking, false, event->text);
    if (event->finish_reason != NULL)
        snprintf(answer->finish_reason, sizeof(answer->finish_reason), "%s", event->finish_reason);
    if (event->prompt_tokens >= 0)
        answer->prompt_tokens = event->prompt_tokens;
    if (event->completion_tokens >= 0)
        answer->completion_tokens = event->completion_tokens;
}

static bool take(void *context, const char *data, size_t length) {
    struct asking *asking = context;
    asking->is_broken = completion_stream_take(&asking->stream, data, length, &asking->err) != 0;
    return !asking->is_broken;
}

static bool is_stopped(void *context) {
    struct asking *asking = context;
    return asking->sink->is_stopped(asking->sink->context);
}

/* Says in answer->end and ->why what an answer of HTTP was. */
static void judge(const struct chat_client *client, const struct asking *asking,
                  const struct http_answer *http, struct chat_answer *answer) {
    struct completion_refusal refusal;
    if (asking->is_broken) {
        answer->end = CHAT_LOST;
        snprintf(answer->why, sizeof(answer->why), "%s", asking->err.message);
    } else if (http->is_stopped) {
        answer->end = CHAT_STOPPED;
    } else if (http->status / 100 == 2) {
        bool is_whole = asking->stream.is_done || answer->finish_reason[0] != '\0';
        answer->end = is_whole ? CHAT_ANSWERED : CHAT_LOST;
        if (!is_whole)
            snprintf(answer->why, sizeof(answer->why), "the server ended the stream early");
    } else {
        completion_refusal_read(&http->body, &refusal);
        bool is_full = strcmp(refusal.code, "context_length_exceeded") == 0;
        answer->end = is_full ? CHAT_FULL : CHAT_REFUSED;
        explain(client, http, &refusal, answer->why, sizeof(answer->why));
    }
}

void chat_client_ask(struct chat_client *client, const struct byte_buffer *body,
                     const struct chat_sink *sink, struct chat_answer *out) {
    char path[HTTP_URL_BYTES + 32];
    struct error err;
    struct http_answer answer;
    *out = (struct chat_answer){
        .prompt_tokens = -1, .completion_tokens = -1, .started_ns = clock_now_ns()};
    struct asking asking = {.sink = sink, .answer = out};
    asking.stream.on_event = on_event;
    asking.stream.context = &asking;
    snprintf(path, sizeof(path), "%s/v1/chat/completions", client->url.path);
    const struct http_client_request request = {
        .url = &client->url,
        .path = path,
        .socket_path = client->socket_path,
        .fields = {"Content-Type: application/json", key_of(client)},
        .body = body->data,
        .body_bytes = body->length,
        .connect_timeout_ms = CONNECT_MS,
        .max_answer_bytes = MAX_REFUSAL_BYTES,
        .take = take,
        .is_stopped = is_stopped,
        .context = &asking,
    };
    if (http_client_send(client->http, &request, &answer, &err) == 0) {
        judge(client, &asking, &answer, out);
        byte_buffer_finish(&answer.body);
    } else {
        out->end = CHAT_LOST;
        snprintf(out->why, sizeof(out->why), "%s", err.message);
    }
    if (out->completion_tokens < 0)
        out->completion_tokens = asking.num_events;
    completion_stream_finish(&asking.stream);
    CHECK(!out->content.failed);
}
