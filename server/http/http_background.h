/* API calls that run on without their client: what an exchange has of its call goes to a connection
 * without a socket, which is in server->background until the call has ended. Such a call counts for its
 * owner and its key as any other, and is waited for when the server stops. */
#ifndef QUIRE_SERVER_HTTP_HTTP_BACKGROUND_H
#define QUIRE_SERVER_HTTP_HTTP_BACKGROUND_H

#include "config/base/text.h"
#include "server/http/http_state.h"

/* Takes the call, whose requests are submitted, off the exchange and fills exchange.out with what is
 * to be answered now; for a stream, the exchange follows it (http_follow.h). -1 and exchange.error when memory is short; nothing is taken then. */
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

#endif
