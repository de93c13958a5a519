#include "server/telemetry/kv_events/kv_event_config.h"

#include "config/json/json_read.h"
#include "config/json/json_field.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_ENDPOINT "tcp://*:5557"
#define MAX_BATCHES 1000000
#define ENDPOINT_FORMS "tcp://HOST:PORT or ipc://PATH"

struct config_body {
    bool enable_kv_cache_events, bind;
    const char *publisher, *endpoint, *replay_endpoint, *topic;
    int32_t buffer_steps, hwm, max_queue_size;
};

#define COUNT(member)                                                                              \
    {                                                                                              \
#member, JSON_FIELD_INT32, .offset = offsetof(struct config_body, member), .min = 1,       \
                                   .max = MAX_BATCHES                                              \
    }

static const struct json_field fields[] = {
    JSON_BOOL(struct config_body, enable_kv_cache_events),
    JSON_TEXT(struct config_body, publisher),
    JSON_TEXT(struct config_body, endpoint),
    JSON_TEXT(struct config_body, replay_endpoint),
    JSON_TEXT(struct config_body, topic),
    COUNT(buffer_steps),
    COUNT(hwm),
    COUNT(max_queue_size),
    JSON_BOOL(struct config_body, bind),
};

static const struct config_body defaults = {.publisher = "zmq",
                                            .endpoint = DEFAULT_ENDPOINT,
                                            .topic = "",
                                            .buffer_steps = 10000,
                                            .hwm = 1000,
                                            .max_queue_size = 100000};

/* --- Endpoints --- */

/* Copies a part that fits. */
static bool copy_text(char *out, size_t room, const char *text, size_t length) {
    if (length == 0 || length >= room)
        return false;
    memcpy(out, text, length);
    out[length] = '\0';
    return true;
}

static bool parse_port(const char *text, int32_t *out) {
    char *end;
    if (text[0] < '0' || text[0] > '9')
        return false;
    long port = strtol(text, &end, 10);
    *out = (int32_t)port;
    return *end == '\0' && port <= 65535;
}

/* text: HOST:PORT, where HOST may be [an IPv6 address] or *. */
static bool parse_tcp(const char *text, struct kv_event_endpoint *out) {
    const char *colon = strrchr(text, ':');
    if (colon == NULL || !parse_port(colon + 1, &out->port))
        return false;
    size_t length = (size_t)(colon - text);
    if (length == 1 && text[0] == '*')
        return copy_text(out->host, sizeof(out->host), "0.0.0.0", strlen("0.0.0.0"));
    if (length > 2 && text[0] == '[' && text[length - 1] == ']')
        return copy_text(out->host, sizeof(out->host), text + 1, length - 2);
    return strcspn(text, ":[]") == length && copy_text(out->host, sizeof(out->host), text, length);
}

static bool parse_endpoint(const char *text, struct kv_event_endpoint *out) {
    *out = (struct kv_event_endpoint){0};
    if (!copy_text(out->text, sizeof(out->text), text, strlen(text)))
        return false;
    if (strncmp(text, "tcp://", 6) == 0)
        return parse_tcp(text + 6, out);
    return strncmp(text, "ipc://", 6) == 0 &&
           copy_text(out->path, sizeof(out->path), text + 6, strlen(text + 6));
}

/* As vLLM's publisher decides (ZmqEventPublisher._socket_setup). */
static bool is_for_binding(const char *endpoint) {
    return strchr(endpoint, '*') != NULL || strstr(endpoint, "::") != NULL ||
           strncmp(endpoint, "ipc://", 6) == 0;
}

/* --- The object --- */

static int read_endpoints(const cJSON *object, const struct config_body *body,
                          struct kv_event_config *out, struct api_error *err) {
    if (!parse_endpoint(body->endpoint, &out->endpoint))
        return json_refuse(json_member(object, "endpoint"), "endpoint", ENDPOINT_FORMS, err);
    if (body->replay_endpoint != NULL && !parse_endpoint(body->replay_endpoint, &out->replay))
        return json_refuse(json_member(object, "replay_endpoint"), "replay_endpoint",
                           ENDPOINT_FORMS, err);
    return 0;
}

static int read_body(const cJSON *object, struct kv_event_config *out, struct api_error *err) {
    struct config_body body = defaults;
    if (json_fields_refuse_unknown(object, JSON_TABLE(fields), err) != 0 ||
        json_fields_read(object, JSON_TABLE(fields), &body, err) != 0 ||
        read_endpoints(object, &body, out, err) != 0)
        return -1;
    bool is_null = strcmp(body.publisher, "null") == 0;
    if (!is_null && strcmp(body.publisher, "zmq") != 0)
        return json_refuse(json_member(object, "publisher"), "publisher", "\"zmq\" or \"null\"",
                           err);
    if (strlen(body.topic) >= sizeof(out->topic))
        return json_refuse(json_member(object, "topic"), "topic", "255 bytes at most", err);
    snprintf(out->topic, sizeof(out->topic), "%s", body.topic);
    out->is_enabled = body.enable_kv_cache_events && !is_null;
    out->binds = body.bind || is_for_binding(body.endpoint);
    out->buffer_steps = body.buffer_steps;
    out->hwm = body.hwm;
    out->max_queue_size = body.max_queue_size;
    return 0;
}

static int read_object(const char *text, struct kv_event_config *out, struct error *err) {
    static const struct json_limits limits = {.max_depth = 2, .max_nodes = 64};
    struct error syntax = {0};
    struct api_error why = {0};
    cJSON *object = json_read(text, strlen(text), &limits, &syntax);
    if (object == NULL)
        return error_set(err, syntax.code == ERROR_MEMORY ? ERROR_MEMORY : ERROR_CONFIG,
                         "kv-events-config: must be a JSON object: %.400s", syntax.message);
    int status = read_body(object, out, &why);
    cJSON_Delete(object);
    if (status != 0)
        return error_set(err, why.status == 503 ? ERROR_MEMORY : ERROR_CONFIG,
                         "kv-events-config: %.480s", why.message);
    return 0;
}

static int read_endpoint(const char *text, struct kv_event_config *out, struct error *err) {
    *out = (struct kv_event_config){.is_enabled = true,
                                    .binds = true,
                                    .buffer_steps = defaults.buffer_steps,
                                    .hwm = defaults.hwm,
                                    .max_queue_size = defaults.max_queue_size};
    if (parse_endpoint(text, &out->endpoint))
        return 0;
    return error_set(err, ERROR_CONFIG, "kv-events: must be " ENDPOINT_FORMS ", not %.200s", text);
}

int kv_event_config_read(const struct options *options, struct kv_event_config *out,
                         struct error *err) {
    const char *endpoint = options->kv_events, *config = options->kv_events_config;
    *out = (struct kv_event_config){0};
    if (endpoint != NULL && config != NULL)
        return error_set(
            err, ERROR_CONFIG,
            "kv-events: %.200s; must not be given together with kv-events-config, whose "
            "endpoint says the same",
            endpoint);
    if (endpoint != NULL && read_endpoint(endpoint, out, err) != 0)
        return -1;
    if (config != NULL && read_object(config, out, err) != 0)
        return -1;
    if (out->is_enabled && !options->enable_prefix_caching)
        return error_set(err, ERROR_CONFIG,
                         "%s: needs enable-prefix-caching: without it there are no events",
                         endpoint != NULL ? "kv-events" : "kv-events-config");
    return 0;
}
