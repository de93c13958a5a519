/* API calls that run on without their client: what an exchange has of its call goes to a connection
 * without a socket, which is in server->background until the call has ended. Such a call counts for
 * its owner and its key as any other, and is waited for when the server stops.
 *
 * Exchanges may follow its stream: they get the events that it has had, from a place in them, and
 * then those that come. A client that reads slowly holds no more than any stream's; the events
 * themselves are there once, until the call has ended and its last follower has left. */
#ifndef QUIRE_SERVER_HTTP_HTTP_BACKGROUND_H
#define QUIRE_SERVER_HTTP_HTTP_BACKGROUND_H

#include "config/base/text.h"
#include "server/http/http_state.h"

/* Takes the call, whose requests are submitted, off the exchange and fills exchange.out with what
 * is to be answered now; for a stream, the exchange follows it. -1 and exchange.error when memory
 * is short; nothing is taken then. */
int http_background_begin(struct connection *connection);
/* Gives its followers what has come, and ends it where its call is done. */
void http_background_advance(struct connection *background);

/* Returns the one with the answer of this id that is of this tenant; NULL: there is none. */
struct connection *http_background_find(const struct http_server *server, int32_t tenant,
                                        struct text id);
/* Ends its call, at its client's wish, and appends what its answer is now; out: may be NULL. */
void http_background_cancel(struct connection *background, struct byte_buffer *out);

/* Ends each one that is left, of a server that has stopped. */
void http_background_drop_all(struct http_server *server);

/* --- Followers --- */

/* Makes an exchange that has no call follow, after the first `at` bytes of the events.
 * Stopping waits for it from now on. */
void http_background_follow(struct connection *connection, struct connection *background,
                            size_t at);
/* Takes over what has come, as far as unread output may grow. */
void http_background_feed(struct connection *connection);
/* Returns whether nothing comes any more; what is in `out` is then the rest. */
bool http_background_is_over(const struct exchange *exchange);

#endif
