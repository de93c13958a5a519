/* Exchanges that follow a stream which is computed in the background (http_background.h): they get the
 * events that it has had, from a place in them, and then those that come. A client that reads slowly
 * holds no more than any stream's; the events themselves are there once, until the call has ended and
 * its last follower has left. */
#ifndef QUIRE_SERVER_HTTP_HTTP_FOLLOW_H
#define QUIRE_SERVER_HTTP_HTTP_FOLLOW_H

#include "server/http/http_state.h"

/* Makes an exchange that has no call follow, behind the first `at` bytes of the events. Stopping waits
 * for it from now on. */
void http_follow_begin(struct connection *connection, struct connection *background, size_t at);
/* Takes over what has come, as far as unread output may grow. */
void http_follow_feed(struct connection *connection);
/* Returns whether nothing comes any more; what is in `out` is then the rest. */
bool http_follow_is_over(const struct exchange *exchange);
/* Leaves what it follows, if anything. */
void http_follow_leave(struct connection *connection);

/* Frees a connection without a client, whose call has ended and was taken off, once nobody follows
 * it. */
void http_follow_release(struct connection *background);

#endif
