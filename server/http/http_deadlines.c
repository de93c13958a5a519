/* libmicrohttpd has no deadline for a whole header or body: each byte restarts its timer. So those
 * are ours. They are generous while there is room and grow short as it fills, so that what holds a
 * place without using it is the first to lose it: under full pressure a body has a second to begin
 * and must come at a megabyte a second. */
#include "server/http/http_deadlines.h"

#include "config/base/clock.h"
#include "server/http/http_connection.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#define HEADER_TIMEOUT_MS 10000 /* accept to complete header */
#define TRANSFER_GRACE_MS 10000 /* after it a transfer is held to TRANSFER_MIN_RATE on average */
#define TRANSFER_STALL_MS 10000 /* longest silence of a body, or of a client that takes nothing */
#define TRANSFER_MIN_RATE 1024  /* bytes per second */
#define PRESSURE_RATE_DOUBLINGS 10 /* of the rate, between no pressure and full pressure */
#define PRESSURE_SHORTENING 0.9    /* of grace and stall, under full pressure */
#define GIVES_WAY_MS 1000          /* silence after which a transfer may be ended for another */
#define CLOSED_MS 500 /* for a request that came right before the end of its connection */

static int64_t shortened(int64_t ms, double pressure) {
    return (int64_t)((double)ms * (1 - PRESSURE_SHORTENING * pressure));
}

/* bytes: since the transfer's start. */
static bool is_below_rate(uint64_t bytes, int64_t elapsed_ms, double pressure) {
    int64_t late_ms = elapsed_ms - shortened(TRANSFER_GRACE_MS, pressure);
    int64_t rate = (int64_t)TRANSFER_MIN_RATE << (int)(PRESSURE_RATE_DOUBLINGS * pressure);
    return late_ms > 0 && bytes < (uint64_t)(late_ms * rate / 1000);
}

static bool is_body_too_slow(const struct exchange *exchange, double pressure, int64_t now_ms) {
    return now_ms - exchange->received_ms > shortened(TRANSFER_STALL_MS, pressure) ||
           is_below_rate(exchange->body_received, now_ms - exchange->start_ns / CLOCK_NS_PER_MS,
                         pressure);
}

/* Checks only while more is left than the socket takes at once: the kernel watches over the
 * rest. */
static bool is_reader_too_slow(const struct exchange *exchange, double pressure, int64_t now_ms) {
    if (exchange_untaken(exchange) < OUTPUT_LIMIT_BYTES)
        return false;
    return now_ms - exchange->drain_ms > shortened(TRANSFER_STALL_MS, pressure) ||
           (exchange->is_whole &&
            is_below_rate(exchange->taken_bytes, now_ms - exchange->answer_ms, pressure));
}

static bool is_too_slow(const struct connection *connection, double pressure, int64_t now_ms) {
    const struct exchange *exchange = &connection->exchange;
    switch (exchange->state) {
    case EXCHANGE_NONE:
        return now_ms - connection->since_ms >
               (connection->is_first ? HEADER_TIMEOUT_MS : HTTP_IDLE_TIMEOUT_MS);
    case EXCHANGE_READING:
    case EXCHANGE_DRAINING:
        return !exchange->is_deferred && is_body_too_slow(exchange, pressure, now_ms);
    case EXCHANGE_ANSWERED:
        return is_reader_too_slow(exchange, pressure, now_ms);
    default:
        return false;
    }
}

/* The kernel reports a socket writable only when a third of its buffer is free, so a client that
 * takes little at a time lets long go by between two writes of ours. What it has acknowledged in
 * between shows that it is alive. */
static void note_acknowledged(struct connection *connection, int64_t now_ms) {
    struct exchange *exchange = &connection->exchange;
    int unacked_bytes = 0;
    bool is_sending = exchange->state == EXCHANGE_ANSWERED && !connection->is_suspended;
    if (is_sending && ioctl(connection->fd, SIOCOUTQ, &unacked_bytes) != 0)
        return;
    if (is_sending && (unacked_bytes == 0 || unacked_bytes < exchange->unacked_bytes))
        exchange->drain_ms = now_ms;
    exchange->unacked_bytes = unacked_bytes;
}

/* Writes the error straight to the socket, from outside the handler. Nothing of this exchange has
 * been sent, and the one before it is complete, so these bytes stand where the client expects an
 * answer. Best effort: the connection is closed right after. */
static void answer_now(struct connection *connection) {
    const struct exchange *exchange = &connection->exchange;
    struct byte_buffer body = {0}, head = {0};
    struct header_field fields[HTTP_ORIGIN_MAX_FIELDS];
    http_origin_fields(connection->server->config.origins, &exchange->origin, fields);
    api_error_format(&exchange->error, &body);
    byte_buffer_printf(
        &head,
        "HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Type: application/json"
        "\r\nX-Request-Id: %s\r\nContent-Length: %zu\r\n",
        exchange->request_id, body.length);
    for (const struct header_field *field = fields; field->name; field++)
        byte_buffer_printf(&head, "%s: %s\r\n", field->name, field->value);
    byte_buffer_append_text(&head, "\r\n");
    byte_buffer_append(&head, body.data, body.length);
    if (!head.failed &&
        send(connection->fd, head.data, head.length, MSG_NOSIGNAL | MSG_DONTWAIT) > 0)
        connection->server->stats.requests_by_class[4]++;
    byte_buffer_finish(&body);
    byte_buffer_finish(&head);
}

/* Gives the connection up, with an error to its client where nothing was answered yet. */
static void end(struct connection *connection) {
    if (connection->exchange.state == EXCHANGE_READING && !connection->is_half_closed) {
        api_error_set(&connection->exchange.error, 408, "invalid_request_error", "request_timeout",
                      NULL, "the body came too slowly: %llu bytes have arrived",
                      (unsigned long long)connection->exchange.body_received);
        answer_now(connection);
    }
    http_connection_give_up(connection);
}

/* Whether a request is not to come, or not as a whole: libmicrohttpd may miss the end of what the
 * client sends, where it came with the bytes before it. */
static bool is_cut_off(const struct connection *connection, int64_t now_ms) {
    const struct exchange *exchange = &connection->exchange;
    bool is_expected = exchange->state == EXCHANGE_NONE || exchange->state == EXCHANGE_READING ||
                       exchange->state == EXCHANGE_DRAINING;
    return connection->is_half_closed && is_expected && !exchange->is_deferred &&
           now_ms - connection->closed_ms > CLOSED_MS && !http_connection_has_unread(connection);
}

void http_deadlines_check(struct connection *connection, double pressure, int64_t now_ms) {
    note_acknowledged(connection, now_ms);
    if (!connection->is_shut &&
        (is_cut_off(connection, now_ms) || is_too_slow(connection, pressure, now_ms)))
        end(connection);
}

/* Returns how long nothing has come or been taken; -1: the connection does something else. */
static int64_t silence_ms(const struct connection *connection, int64_t now_ms) {
    const struct exchange *exchange = &connection->exchange;
    if (connection->is_shut || exchange->is_deferred)
        return -1;
    if (exchange->state == EXCHANGE_READING || exchange->state == EXCHANGE_DRAINING)
        return now_ms - exchange->received_ms;
    /* libmicrohttpd has something to write, and the kernel what was written before it. */
    bool is_blocked = exchange->state == EXCHANGE_ANSWERED && !connection->is_suspended &&
                      exchange->unacked_bytes > 0;
    return is_blocked ? now_ms - exchange->drain_ms : -1;
}

/* Returns the most silent transfer of the owner that holds most, of those that hold more than this
 * one, and itself. */
static struct connection *find_silent(struct http_server *server, const struct http_owner *owner) {
    struct connection *found = NULL;
    int64_t now_ms = clock_now_ms(), longest_ms = 0;
    for (struct connection *c = server->connections; c != NULL; c = c->next) {
        int64_t silent_ms = silence_ms(c, now_ms);
        const struct http_owner *other = c->exchange.owner;
        if (silent_ms < GIVES_WAY_MS || c->exchange.held_bytes == 0 ||
            (other != owner && other->bytes <= owner->bytes))
            continue;
        const struct http_owner *most = found != NULL ? found->exchange.owner : NULL;
        if (most == NULL || other->bytes > most->bytes ||
            (other == most && silent_ms > longest_ms)) {
            found = c;
            longest_ms = silent_ms;
        }
    }
    return found;
}

bool http_deadlines_take_memory(struct connection *connection, size_t bytes) {
    struct http_server *server = connection->server;
    struct http_owner *owner = connection->exchange.owner;
    while (!http_memory_take(&server->memory, owner, bytes)) {
        struct connection *silent = find_silent(server, owner);
        if (silent == NULL || silent == connection)
            return false;
        end(silent);
        http_connection_release_memory(silent);
    }
    connection->exchange.held_bytes += bytes;
    return true;
}

/* Returns whether the connection is idle, or has a header, a body or an answer that stands
 * still. */
static bool gives_way(const struct connection *connection, int64_t now_ms) {
    if (connection->exchange.state == EXCHANGE_NONE)
        return !connection->is_closed;
    return silence_ms(connection, now_ms) >= GIVES_WAY_MS;
}

static int64_t idle_since_ms(const struct connection *connection, int64_t now_ms) {
    return connection->exchange.state == EXCHANGE_NONE ? connection->since_ms
                                                       : now_ms - silence_ms(connection, now_ms);
}

/* Half of the connections are nothing to worry about: most of them have answers to wait for. Nor
 * are those that give way to the next one. */
double http_deadlines_pressure(const struct http_server *server) {
    int64_t now_ms = clock_now_ms(), num_busy = 0;
    for (const struct connection *c = server->connections; c != NULL; c = c->next)
        num_busy += !c->is_shut && !gives_way(c, now_ms);
    double memory = http_memory_pressure(&server->memory);
    double connections = 2 * (double)num_busy / (double)server->config.max_connections - 1;
    double pressure = memory > connections ? memory : connections;
    return pressure < 1 ? pressure : 1;
}

void http_deadlines_make_room(struct http_server *server, const struct connection *newcomer,
                              bool is_of_all) {
    struct connection *oldest = NULL;
    int64_t now_ms = clock_now_ms();
    for (struct connection *c = server->connections; c != NULL; c = c->next) {
        bool is_concerned = is_of_all || c->address == newcomer->address;
        if (c == newcomer || !is_concerned || !gives_way(c, now_ms))
            continue;
        int64_t more =
            oldest == NULL ? 1 : c->address->num_connections - oldest->address->num_connections;
        bool is_older = more == 0 && idle_since_ms(c, now_ms) <= idle_since_ms(oldest, now_ms);
        /* The kernel may hold bytes of a request that nothing has looked at yet. */
        bool has_unread = (more > 0 || is_older) && c->exchange.state == EXCHANGE_NONE &&
                          http_connection_has_unread(c);
        if ((more > 0 || is_older) && !has_unread)
            oldest = c;
    }
    if (oldest != NULL)
        end(oldest);
}
