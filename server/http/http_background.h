/* API calls that continue without their client: the exchange's call moves to a connection without a
 * socket, which is in server->background until the call has ended. Such a call counts for its owner
 * and its key like any other, and a stopping server waits for it.
 *
 * Exchanges may follow its stream: they get its past events from a given position, and then new
 * ones. A slow reader holds no more memory than that of any other stream; the events themselves are
 * stored once, until the call has ended and its last follower has left. */
#ifndef QUIRE_SERVER_HTTP_HTTP_BACKGROUND_H
#define QUIRE_SERVER_HTTP_HTTP_BACKGROUND_H

#include "config/base/text.h"
#include "server/http/http_state.h"

/* Takes the call, whose requests are submitted, off the exchange and fills exchange.out with the
 * immediate answer; for a stream, the exchange follows it. Returns -1 with exchange.error when
 * memory is short; then nothing is taken. */
int http_background_begin(struct connection *connection);
/* Passes new events to its followers, and ends it if its call is done. */
void http_background_advance(struct connection *background);

/* Returns the one whose answer has this id and belongs to this tenant; NULL: none. */
struct connection *http_background_find(const struct http_server *server, int32_t tenant,
                                        struct text id);
/* Ends its call at the client's request, and appends the resulting answer; out may be NULL. */
void http_background_cancel(struct connection *background, struct byte_buffer *out);

/* Ends all that are left, after the server has stopped. */
void http_background_drop_all(struct http_server *server);

/* --- Followers --- */

/* Makes an exchange that has no call follow, after the first `at` bytes of the events.
 * Stopping waits for it from now on. */
void http_background_follow(struct connection *connection, struct connection *background,
                            size_t at);
/* Takes new events, as far as the limit of unread output allows. */
void http_background_feed(struct connection *connection);
/* Returns whether no more events follow; `out` then holds the rest. */
bool http_background_is_over(const struct exchange *exchange);

#endif
