#include "server/http/http_follow.h"

#include "config/base/clock.h"

#include <stdlib.h>

void http_follow_begin(struct connection *connection, struct connection *background, size_t at) {
    struct exchange *exchange = &connection->exchange;
    exchange->is_event_stream = true;
    exchange->followed = background;
    exchange->followed_bytes = at;
    exchange->output_ms = clock_now_ms();
    background->num_followers++;
    connection->server->num_pending++;
    http_follow_feed(connection);
}

void http_follow_feed(struct connection *connection) {
    struct exchange *exchange = &connection->exchange;
    if (exchange->followed == NULL)
        return;
    const struct byte_buffer *events = &exchange->followed->exchange.out;
    size_t left = events->length - exchange->followed_bytes, pending = exchange_pending(exchange);
    size_t room = pending < OUTPUT_LIMIT_BYTES ? OUTPUT_LIMIT_BYTES - pending : 0;
    size_t length = left < room ? left : room;
    if (length == 0)
        return;
    byte_buffer_append(&exchange->out, events->data + exchange->followed_bytes, length);
    exchange->followed_bytes += length;
    exchange->output_ms = clock_now_ms();
}

bool http_follow_is_over(const struct exchange *exchange) {
    const struct connection *followed = exchange->followed;
    return followed == NULL ||
           (followed->is_ended && exchange->followed_bytes == followed->exchange.out.length);
}

void http_follow_leave(struct connection *connection) {
    struct exchange *exchange = &connection->exchange;
    struct connection *background = exchange->followed;
    if (background == NULL)
        return;
    exchange->followed = NULL;
    background->num_followers--;
    connection->server->num_pending--;
    if (background->is_ended)
        http_follow_release(background);
}

void http_follow_release(struct connection *background) {
    struct exchange *exchange = &background->exchange;
    struct http_memory *memory = &background->server->memory;
    if (background->num_followers > 0)
        return;
    byte_buffer_finish(&exchange->out);
    byte_buffer_finish(&exchange->body);
    http_memory_give(memory, exchange->owner, exchange->held_bytes);
    http_owner_leave(memory, exchange->owner);
    api_key_leave(exchange->key);
    http_owner_leave(memory, background->address);
    free(background);
}
