/* Responses. Each carries X-Request-Id and what lets a page of another site read it; headers that
 * depend on the status are added here, so that an error looks the same wherever it came from. */
#include "server/http/http_state.h"

#include "config/log.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#define STREAM_BLOCK_BYTES 4096
#define RETRY_AFTER_MS 1000
#define JSON_TYPE "application/json"

static void add_header(struct MHD_Response *response, const char *name, const char *value) {
    if (value && MHD_add_response_header(response, name, value) == MHD_NO)
        log_warning("response header %s was refused by the HTTP library", name);
}

static void add_retry_headers(struct MHD_Response *response) {
    char seconds[16], milliseconds[16];
    snprintf(seconds, sizeof(seconds), "%d", (RETRY_AFTER_MS + 999) / 1000);
    snprintf(milliseconds, sizeof(milliseconds), "%d", RETRY_AFTER_MS);
    add_header(response, "Retry-After", seconds);
    add_header(response, "retry-after-ms", milliseconds);
}

static void add_origin_fields(struct connection *connection, struct MHD_Response *response) {
    struct header_field fields[HTTP_ORIGIN_MAX_FIELDS];
    http_origin_fields(connection->server->config.origins, &connection->exchange.origin, fields);
    for (const struct header_field *field = fields; field->name; field++)
        add_header(response, field->name, field->value);
}

/* What is not said to be kept, no cache keeps. */
static void add_headers(struct connection *connection, int status, struct MHD_Response *response) {
    const struct exchange *exchange = &connection->exchange;
    add_header(response, "X-Request-Id", exchange->request_id);
    add_origin_fields(connection, response);
    for (const struct header_field *field = exchange->fields; field && field->name; field++)
        add_header(response, field->name, field->value);
    add_header(response, "X-Ignored-Params",
               exchange->call ? call_ignored_params(exchange->call) : exchange->ignored.data);
    if (exchange->must_close || connection->server->is_stopping)
        add_header(response, "Connection", "close");
    if (status == 401)
        add_header(response, "WWW-Authenticate", "Bearer");
    if (status == 405 || status == 204)
        add_header(response, "Allow", exchange->allow);
    if (status == 429 || status == 503)
        add_retry_headers(response);
    add_header(response, "X-Content-Type-Options", "nosniff");
    if (!MHD_get_response_header(response, "Cache-Control"))
        add_header(response, "Cache-Control", "no-store");
}

/* Takes the response over. */
static enum MHD_Result queue(struct connection *connection, int status,
                             struct MHD_Response *response) {
    if (!response)
        return MHD_NO;
    add_headers(connection, status, response);
    enum MHD_Result result = MHD_queue_response(connection->mhd, (unsigned)status, response);
    MHD_destroy_response(response);
    connection->exchange.state = EXCHANGE_ANSWERED;
    connection->server->stats.requests_by_class[status / 100]++;
    return result;
}

/* Moves the buffer's memory into the response. */
static enum MHD_Result queue_buffer(struct connection *connection, int status,
                                    struct byte_buffer *body, const char *content_type) {
    if (body->failed)
        return MHD_NO;
    struct MHD_Response *response = MHD_create_response_from_buffer(
        body->length, body->data, body->data ? MHD_RESPMEM_MUST_FREE : MHD_RESPMEM_PERSISTENT);
    if (!response)
        return MHD_NO;
    *body = (struct byte_buffer){0};
    add_header(response, "Content-Type", content_type);
    return queue(connection, status, response);
}

enum MHD_Result reply_error(struct connection *connection) {
    struct byte_buffer body = {0};
    api_error_format(&connection->exchange.error, &body);
    enum MHD_Result result =
        queue_buffer(connection, connection->exchange.error.status, &body, JSON_TYPE);
    byte_buffer_finish(&body);
    return result;
}

enum MHD_Result reply_body(struct connection *connection, const char *content_type) {
    struct exchange *exchange = &connection->exchange;
    int status = exchange->status ? exchange->status : 200;
    return queue_buffer(connection, status, &exchange->out, content_type);
}

enum MHD_Result reply_options(struct connection *connection) {
    struct byte_buffer nothing = {0};
    return queue_buffer(connection, 204, &nothing, NULL);
}

/* The echo of a long prompt with logprobs is megabytes in one event: moving the rest to the front
 * only once half is taken keeps the work proportional to the bytes. */
static void take_output(struct exchange *exchange, size_t length) {
    exchange->out_taken += length;
    if (exchange->out_taken < exchange_pending(exchange))
        return;
    byte_buffer_consume(&exchange->out, exchange->out_taken);
    exchange->out_taken = 0;
}

/* Copies what is there. With nothing there it must suspend: returning 0 otherwise makes
 * libmicrohttpd call again at once, for ever. */
static ssize_t read_stream(void *context, uint64_t position, char *out, size_t capacity) {
    struct connection *connection = context;
    struct exchange *exchange = &connection->exchange;
    if (connection->is_closed || exchange->out.failed)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    size_t pending = exchange_pending(exchange);
    size_t length = pending < capacity ? pending : capacity;
    if (length == 0) {
        if (call_is_done(exchange->call))
            return MHD_CONTENT_READER_END_OF_STREAM;
        connection_suspend(connection);
        return 0;
    }
    memcpy(out, exchange->out.data + exchange->out_taken, length);
    take_output(exchange, length);
    exchange->drain_ms = http_now_ms();
    http_call_output_drained(connection);
    return (ssize_t)length;
}

enum MHD_Result reply_stream(struct connection *connection) {
    struct MHD_Response *response = MHD_create_response_from_callback(
        MHD_SIZE_UNKNOWN, STREAM_BLOCK_BYTES, read_stream, connection, NULL);
    if (!response)
        return MHD_NO;
    add_header(response, "Content-Type", "text/event-stream; charset=utf-8");
    add_header(response, "Cache-Control", "no-cache");
    add_header(response, "X-Accel-Buffering", "no");
    return queue(connection, 200, response);
}

void reply_set_too_large(struct connection *connection) {
    api_error_set(&connection->exchange.error, 413, "invalid_request_error", "body_too_large", NULL,
                  "the body is larger than %zu bytes", connection->server->config.max_body_bytes);
}

/* Nothing of this exchange has been sent, and the one before it is complete, so these bytes stand
 * where the client expects an answer. Best effort: the connection is closed right after. */
void reply_error_now(struct connection *connection) {
    const struct exchange *exchange = &connection->exchange;
    struct byte_buffer body = {0}, head = {0};
    struct header_field fields[HTTP_ORIGIN_MAX_FIELDS];
    http_origin_fields(connection->server->config.origins, &exchange->origin, fields);
    api_error_format(&exchange->error, &body);
    bool is_too_large = exchange->error.status == 413;
    byte_buffer_printf(&head,
                       "HTTP/1.1 %s\r\nConnection: close\r\nContent-Type: " JSON_TYPE
                       "\r\nX-Request-Id: %s\r\n%sContent-Length: %zu\r\n",
                       is_too_large ? "413 Content Too Large" : "503 Service Unavailable",
                       exchange->request_id, is_too_large ? "" : "Retry-After: 1\r\n", body.length);
    for (const struct header_field *field = fields; field->name; field++)
        byte_buffer_printf(&head, "%s: %s\r\n", field->name, field->value);
    byte_buffer_append_text(&head, "\r\n");
    byte_buffer_append(&head, body.data, body.length);
    if (!head.failed &&
        send(connection->fd, head.data, head.length, MSG_NOSIGNAL | MSG_DONTWAIT) > 0)
        connection->server->stats.requests_by_class[exchange->error.status / 100]++;
    byte_buffer_finish(&body);
    byte_buffer_finish(&head);
}
