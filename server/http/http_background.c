#include "server/http/http_background.h"

#include "config/base/clock.h"
#include "server/http/http_admission.h"
#include "server/http/http_connection.h"

#include <stdlib.h>
#include <string.h>

/* --- Followers --- */

void http_background_follow(struct connection *connection, struct connection *background,
                            size_t at) {
    struct exchange *exchange = &connection->exchange;
    exchange->is_event_stream = true;
    exchange->followed = background;
    exchange->followed_bytes = at;
    exchange->output_ms = clock_now_ms();
    background->num_followers++;
    connection->server->num_pending++;
    http_background_feed(connection);
}

void http_background_feed(struct connection *connection) {
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

bool http_background_is_over(const struct exchange *exchange) {
    const struct connection *followed = exchange->followed;
    return followed == NULL ||
           (followed->is_ended && exchange->followed_bytes == followed->exchange.out.length);
}

/* --- Calls without a client --- */

static void link_background(struct http_server *server, struct connection *background) {
    background->prev = NULL;
    background->next = server->background;
    if (background->next != NULL)
        background->next->prev = background;
    server->background = background;
}

static void unlink_background(struct connection *background) {
    if (background->prev != NULL)
        background->prev->next = background->next;
    else
        background->server->background = background->next;
    if (background->next != NULL)
        background->next->prev = background->prev;
}

/* The owners get a user more: exchange and connection leave theirs at their own end. */
static struct connection *create(struct connection *connection) {
    struct connection *background = calloc(1, sizeof(*background));
    if (background == NULL)
        return NULL;
    background->server = connection->server;
    background->fd = -1;
    background->address = http_owner_share(connection->address);
    background->exchange = connection->exchange;
    struct exchange *exchange = &background->exchange;
    exchange->owner = http_owner_share(exchange->owner);
    api_key_use(exchange->key);
    exchange->origin = (struct http_origin_request){0}; /* texts of the connection's */
    exchange->out = (struct byte_buffer){0};
    exchange->ignored = (struct byte_buffer){0};
    exchange->logged_body = (struct byte_buffer){0};
    exchange->argument = (struct text){0};
    return background;
}

int http_background_begin(struct connection *connection) {
    struct exchange *exchange = &connection->exchange;
    struct api_call *call = exchange->call;
    const char *ignored = api_call_ignored_params(call);
    if (!api_call_is_stream(call))
        api_call_write_state(call, &exchange->out);
    if (ignored != NULL)
        byte_buffer_append(&exchange->ignored, ignored, strlen(ignored) + 1);
    bool has_memory = !exchange->out.failed && !exchange->ignored.failed;
    struct connection *background = has_memory ? create(connection) : NULL;
    if (background != NULL && api_call_is_stream(call))
        api_call_begin_stream(call, &background->exchange.out);
    if (background == NULL) {
        byte_buffer_finish(&exchange->out);
        byte_buffer_finish(&exchange->ignored);
        return api_error_set_memory(&exchange->error);
    }
    for (int i = 0; i < api_call_num_requests(call); i++)
        api_call_request(call, i)->user = background;
    /* What is left is the exchange of an answer that is here. */
    exchange->call = NULL;
    exchange->is_pending = false;
    exchange->is_let_in = false;
    exchange->held_bytes = 0;
    exchange->num_requests = 0;
    exchange->num_generated = 0;
    exchange->num_reserved = 0;
    link_background(connection->server, background);
    if (api_call_is_stream(call))
        http_background_follow(connection, background, 0);
    return 0;
}

static void feed_followers(const struct connection *background) {
    int64_t num_left = background->num_followers;
    for (struct connection *c = background->server->connections; c != NULL && num_left > 0;
         c = c->next) {
        if (c->exchange.followed != background)
            continue;
        num_left--;
        http_background_feed(c);
        http_connection_wake(c);
    }
}

static void end(struct connection *background) {
    struct exchange *exchange = &background->exchange;
    exchange->answered_status = 200;
    http_connection_log(background);
    http_connection_cancel(background);
    api_call_destroy(exchange->call);
    exchange->call = NULL;
    http_admission_end(background);
    http_models_leave(background->server, exchange->model);
    unlink_background(background);
    background->is_ended = true;
    feed_followers(background);
    http_connection_free_background(background);
}

void http_background_advance(struct connection *background) {
    if (api_call_is_done(background->exchange.call))
        end(background);
    else
        feed_followers(background);
}

struct connection *http_background_find(const struct http_server *server, int32_t tenant,
                                        struct text id) {
    for (struct connection *c = server->background; c != NULL; c = c->next) {
        const struct api_key *key = c->exchange.key;
        if ((key != NULL ? key->tenant : -1) == tenant &&
            text_is(id, api_call_id(c->exchange.call)))
            return c;
    }
    return NULL;
}

/* A call that ends so was served: its answer is what is known of it. */
void http_background_cancel(struct connection *background, struct byte_buffer *out) {
    struct exchange *exchange = &background->exchange;
    for (int i = 0; i < api_call_num_requests(exchange->call); i++) {
        struct request *request = api_call_request(exchange->call, i);
        request->user = NULL;
        engine_cancel(exchange->model->parts.engine, request);
    }
    if (api_call_is_stream(exchange->call)) {
        api_call_cancel(exchange->call, &exchange->out);
        if (out != NULL)
            api_call_write_state(exchange->call, out);
    } else {
        api_call_cancel(exchange->call, out != NULL ? out : &exchange->out);
    }
    end(background);
}

void http_background_drop_all(struct http_server *server) {
    while (server->background != NULL)
        http_background_cancel(server->background, NULL);
}
