/* Responses. Each carries X-Request-Id and what lets a page of another site read it; headers that
 * depend on the status are added here, so that an error looks the same wherever it came from. */
#include "server/http/http_reply.h"

#include "config/base/clock.h"
#include "server/http/http_admission.h"
#include "server/http/http_connection.h"
#include "server/http/http_dispatch.h"
#include "server/http/http_background.h"
#include "server/http/http_routes.h"
#include "server/keys/api_keys.h"

#include "config/base/log.h"

#include <stdio.h>
#include <string.h>

#define STREAM_BLOCK_BYTES 4096
#define RETRY_AFTER_MS 1000 /* where the wait may end any moment */
#define JSON_TYPE "application/json"

void http_reply_log(void *context, const char *format, va_list args) {
    char text[256];
    vsnprintf(text, sizeof(text), format, args);
    text[strcspn(text, "\n")] = '\0';
    log_debug("libmicrohttpd: %s", text);
}

static void add_header(struct MHD_Response *response, const char *name, const char *value) {
    if (value && MHD_add_response_header(response, name, value) == MHD_NO)
        log_warning("response header %s was refused by the HTTP library", name);
}

static void add_retry_headers(const struct connection *connection, int status,
                              struct MHD_Response *response) {
    char seconds[24], milliseconds[24];
    const char *code = connection->exchange.error.code;
    bool would_crash_again = code != NULL && strcmp(code, "device_crashed") == 0;
    if (connection->exchange.retry_ms < 0 || would_crash_again) {
        add_header(response, "x-should-retry", "false"); /* as OpenAI's SDKs read it */
        return;
    }
    bool is_queue_timeout = code != NULL && strcmp(code, "queue_timeout") == 0;
    int64_t wait_ms = connection->exchange.retry_ms > 0   ? connection->exchange.retry_ms
                      : status == 429 || is_queue_timeout ? http_admission_wait_ms(connection)
                                                          : RETRY_AFTER_MS;
    snprintf(seconds, sizeof(seconds), "%lld", (long long)(wait_ms + 999) / 1000);
    snprintf(milliseconds, sizeof(milliseconds), "%lld", (long long)wait_ms);
    add_header(response, "Retry-After", seconds);
    add_header(response, "retry-after-ms", milliseconds);
}

/* Adds what is left of the limits of a key that made an API call. */
static void add_limit_fields(const struct exchange *exchange, struct MHD_Response *response) {
    struct key_limit_field fields[KEY_LIMIT_MAX_FIELDS];
    if (exchange->key == NULL || exchange->route == NULL || exchange->route->parse == NULL)
        return;
    int count = key_limits_fields(exchange->key, clock_now_ms(), fields);
    for (int i = 0; i < count; i++)
        add_header(response, fields[i].name, fields[i].value);
}

/* Adds what every response has; without a word on caching, no cache keeps it. */
static void add_headers(struct connection *connection, int status, struct MHD_Response *response) {
    const struct exchange *exchange = &connection->exchange;
    const char *request_id_field = http_routes_dialect_of(exchange)->request_id_field;
    struct header_field origin_fields[HTTP_ORIGIN_MAX_FIELDS];
    add_header(response, "X-Request-Id", exchange->request_id);
    if (request_id_field != NULL)
        add_header(response, request_id_field, exchange->request_id);
    http_origin_fields(connection->server->config.origins, &exchange->origin, origin_fields);
    for (const struct header_field *field = origin_fields; field->name; field++)
        add_header(response, field->name, field->value);
    for (const struct header_field *field = exchange->fields; field && field->name; field++)
        add_header(response, field->name, field->value);
    add_header(response, "X-Ignored-Params",
               exchange->call ? api_call_ignored_params(exchange->call) : exchange->ignored.data);
    if (exchange->must_close || http_is_closing(connection->server))
        add_header(response, "Connection", "close");
    add_limit_fields(exchange, response);
    if (status == 401)
        add_header(response, "WWW-Authenticate", "Bearer");
    if (status == 405 || status == 204)
        add_header(response, "Allow", exchange->allow);
    if (status == 429 || status == 500 || status == 503)
        add_retry_headers(connection, status, response);
    add_header(response, "X-Content-Type-Options", "nosniff");
    if (!MHD_get_response_header(response, "Cache-Control"))
        add_header(response, "Cache-Control", "no-store");
}

static void count_answer(struct connection *connection, int status) {
    connection->exchange.state = EXCHANGE_ANSWERED;
    connection->exchange.answered_status = status;
    connection->exchange.answer_ms = clock_now_ms();
    connection->exchange.drain_ms = connection->exchange.answer_ms;
    connection->server->stats.requests_by_class[status / 100]++;
    if (status >= 400)
        metrics_http_count_error(&connection->server->stats, status,
                                 connection->exchange.error.code);
    if (connection->exchange.error.status == status) /* not a state, like that of /health */
        http_connection_log_error(connection);
    if (connection->exchange.key != NULL)
        connection->exchange.key->stats.requests_by_class[status / 100]++;
}

/* MHD_queue_response or MHD_refuse_request. */
typedef enum MHD_Result queue_response(struct MHD_Connection *mhd, unsigned status,
                                       struct MHD_Response *response);

/* Takes the response over. Without memory for one there is one made beforehand, which no header of
 * this request's can be added to. */
static enum MHD_Result queue_by(struct connection *connection, int status,
                                struct MHD_Response *response, queue_response *give) {
    if (!response) {
        count_answer(connection, 503);
        return give(connection->mhd, 503, connection->server->out_of_memory);
    }
    add_headers(connection, status, response);
    count_answer(connection, status);
    enum MHD_Result result = give(connection->mhd, (unsigned)status, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result queue(struct connection *connection, int status,
                             struct MHD_Response *response) {
    return queue_by(connection, status, response, MHD_queue_response);
}

static struct MHD_Response *create_from_buffer(struct byte_buffer *body, const char *content_type) {
    if (body->failed)
        return NULL;
    struct MHD_Response *response = MHD_create_response_from_buffer(
        body->length, body->data, body->data ? MHD_RESPMEM_MUST_FREE : MHD_RESPMEM_PERSISTENT);
    if (!response)
        return NULL;
    *body = (struct byte_buffer){0};
    add_header(response, "Content-Type", content_type);
    return response;
}

/* Hands the body to libmicrohttpd. */
static struct MHD_Response *create_whole_at_once(struct connection *connection,
                                                 struct byte_buffer *body,
                                                 const char *content_type) {
    connection->exchange.whole_bytes = body->length;
    struct MHD_Response *response = create_from_buffer(body, content_type);
    byte_buffer_finish(body);
    return response;
}

static struct MHD_Response *create_error(const struct api_error *error) {
    struct byte_buffer body = {0};
    api_error_format(error, &body);
    struct MHD_Response *response = create_from_buffer(&body, JSON_TYPE);
    byte_buffer_finish(&body);
    return response;
}

/* Takes what the exchange has for an error. */
static struct MHD_Response *create_answer_error(struct connection *connection) {
    const struct exchange *exchange = &connection->exchange;
    struct byte_buffer body = {0};
    http_routes_dialect_of(exchange)->format_error(&exchange->error, exchange->request_id, &body);
    return create_whole_at_once(connection, &body, JSON_TYPE);
}

enum MHD_Result http_reply_error(struct connection *connection) {
    const struct api_error *error = &connection->exchange.error;
    return queue(connection, error->status, create_answer_error(connection));
}

enum MHD_Result http_reply_refuse_body(struct connection *connection) {
    const struct api_error *error = &connection->exchange.error;
    struct MHD_Response *response = create_answer_error(connection);
    connection->exchange.must_close = true;
    http_connection_release_memory(connection);
    return queue_by(connection, error->status, response, MHD_refuse_request);
}

struct MHD_Response *http_reply_refused(void *context, struct MHD_Connection *mhd,
                                        unsigned status) {
    struct http_server *server = context;
    struct connection *connection =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
    struct api_error error;
    char request_id[REQUEST_ID_BYTES];
    const char *code = "bad_request", *message = "the request is not valid HTTP (RFC 9112)";
    if (status == 414 || status == 431) {
        code = "header_too_large";
        message = "the request line and the header fields have more bytes than are allowed";
    } else if (status == 413) {
        code = "body_too_large";
        message = "the body has more bytes than are allowed";
    } else if (status == 505) {
        code = "http_version";
        message = "this version of HTTP is not supported: 1.1 and 1.0 are";
    }
    api_error_set(&error, (int)status, "invalid_request_error", code, NULL, "%s", message);
    struct MHD_Response *response = create_error(&error);
    bool has_begun = connection != NULL && connection->exchange.state != EXCHANGE_NONE;
    http_request_id(has_begun ? connection->exchange.request_id : NULL, request_id);
    if (has_begun) { /* nothing more is sent to it; the answer may be written over its header */
        connection->exchange.error = error;
        count_answer(connection, (int)status);
        http_connection_release_memory(connection);
    } else {
        http_connection_log_refused(server, connection, request_id, &error);
        server->stats.requests_by_class[status / 100]++;
        metrics_http_count_error(&server->stats, (int)status, code);
    }
    if (response)
        add_header(response, "X-Request-Id", request_id);
    return response;
}

struct MHD_Response *http_reply_create_out_of_memory(void) {
    struct api_error error;
    api_error_set_memory(&error);
    struct MHD_Response *response = create_error(&error);
    if (response) {
        add_header(response, "Retry-After", "1");
        add_header(response, "Connection", "close");
    }
    return response;
}

/* Copies the next part of the output into a block of libmicrohttpd's. The echo of a long prompt
 * with logprobs is megabytes in one event: moving the rest to the front only once half is taken
 * keeps the work proportional to the bytes. */
static size_t copy_output(struct exchange *exchange, char *out, size_t capacity) {
    size_t pending = exchange_pending(exchange);
    size_t length = pending < capacity ? pending : capacity;
    memcpy(out, exchange->out.data + exchange->out_taken, length);
    exchange->out_taken += length;
    exchange->taken_bytes += length;
    exchange->drain_ms = clock_now_ms();
    if (exchange->out_taken >= exchange_pending(exchange)) {
        byte_buffer_consume(&exchange->out, exchange->out_taken);
        exchange->out_taken = 0;
    }
    return length;
}

/* Copies the next part of what is kept elsewhere. A kept response may be gone: the client sees
 * that its answer is cut, as with a connection that broke. */
static ssize_t copy_elsewhere(struct exchange *exchange, uint64_t position, char *out,
                              size_t capacity) {
    ssize_t length = 0;
    if (exchange->kept.store != NULL) {
        length = response_reader_read(&exchange->kept, (size_t)position, out, capacity);
    } else {
        size_t left = exchange->constant.length - (size_t)position;
        length = (ssize_t)(left < capacity ? left : capacity);
        memcpy(out, exchange->constant.data + position, (size_t)length);
    }
    exchange->taken_bytes += length > 0 ? (size_t)length : 0;
    exchange->drain_ms = clock_now_ms();
    return length;
}

static bool is_elsewhere(const struct exchange *exchange) {
    return exchange->constant.data != NULL || exchange->kept.store != NULL;
}

static ssize_t read_whole(void *context, uint64_t position, char *out, size_t capacity) {
    struct connection *connection = context;
    struct exchange *exchange = &connection->exchange;
    if (connection->is_shut)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    if (!is_elsewhere(exchange))
        return (ssize_t)copy_output(exchange, out, capacity);
    ssize_t length = copy_elsewhere(exchange, position, out, capacity);
    return length < 0 ? MHD_CONTENT_READER_END_WITH_ERROR : length;
}

static struct MHD_Response *create_in_pieces(struct connection *connection, uint64_t length) {
    struct MHD_Response *response =
        MHD_create_response_from_callback(length, WHOLE_BLOCK_BYTES, read_whole, connection, NULL);
    connection->exchange.is_whole = response != NULL;
    return response;
}

/* Keeps a long answer here while it is taken, so that the client's progress is known; what is kept
 * elsewhere is not copied. */
static struct MHD_Response *create_whole(struct connection *connection, const char *content_type) {
    struct exchange *exchange = &connection->exchange;
    struct MHD_Response *response;
    if (is_elsewhere(exchange))
        response = create_in_pieces(connection, exchange->constant.length + exchange->kept.length);
    else if (exchange->out.failed || exchange->out.length < OUTPUT_LIMIT_BYTES)
        return create_whole_at_once(connection, &exchange->out, content_type);
    else
        response = create_in_pieces(connection, exchange->out.length);
    if (response != NULL)
        add_header(response, "Content-Type", content_type);
    return response;
}

enum MHD_Result http_reply_body(struct connection *connection, const char *content_type) {
    int status = connection->exchange.status ? connection->exchange.status : 200;
    if (http_dispatch_hold_answer(connection) != 0)
        return http_reply_error(connection);
    return queue(connection, status, create_whole(connection, content_type));
}

enum MHD_Result http_reply_options(struct connection *connection) {
    struct byte_buffer nothing = {0};
    return queue(connection, 204, create_from_buffer(&nothing, NULL));
}

/* Copies what is present. With nothing present it must suspend: otherwise returning 0 makes
 * libmicrohttpd call again at once, forever. */
static ssize_t read_stream(void *context, uint64_t position, char *out, size_t capacity) {
    struct connection *connection = context;
    struct exchange *exchange = &connection->exchange;
    if (connection->is_closed || exchange->out.failed)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    if (is_elsewhere(exchange)) {
        ssize_t length = copy_elsewhere(exchange, position, out, capacity);
        return length < 0    ? MHD_CONTENT_READER_END_WITH_ERROR
               : length == 0 ? MHD_CONTENT_READER_END_OF_STREAM
                             : length;
    }
    if (exchange_pending(exchange) == 0) {
        bool is_over = exchange->follows_models ? http_is_closing(connection->server)
                       : exchange->call != NULL ? api_call_is_done(exchange->call)
                                                : http_background_is_over(exchange);
        if (is_over)
            return MHD_CONTENT_READER_END_OF_STREAM;
        http_connection_suspend(connection);
        return 0;
    }
    size_t length = copy_output(exchange, out, capacity);
    http_dispatch_output_drained(connection);
    http_background_feed(connection);
    return (ssize_t)length;
}

enum MHD_Result http_reply_stream(struct connection *connection) {
    struct MHD_Response *response = MHD_create_response_from_callback(
        MHD_SIZE_UNKNOWN, STREAM_BLOCK_BYTES, read_stream, connection, NULL);
    if (!response)
        return MHD_NO;
    add_header(response, "Content-Type",
               http_routes_dialect_of(&connection->exchange)->stream_type);
    add_header(response, "Cache-Control", "no-cache");
    add_header(response, "X-Accel-Buffering", "no");
    return queue(connection, 200, response);
}
