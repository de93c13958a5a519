/* How the server stops: it may be announced some time before; then what is in flight gets a grace time, then a cancellation, then a closed
 * socket. The I/O loop goes through these in turn (http_server.c). */
#ifndef QUIRE_SERVER_HTTP_HTTP_STOP_H
#define QUIRE_SERVER_HTTP_HTTP_STOP_H

#include "server/http/http_state.h"

/* Less than STOP_GUARD_SPARE_MS (stop_guard.h), which leaves some for what is closed then. */
#define HTTP_STOP_CANCEL_MS 2500 /* for cancelled calls to end and their answers to go out */
#define HTTP_STOP_CLOSE_MS 1000  /* for connections to close after that */

/* Says to load balancers that they should send requests elsewhere, and puts the stop off until they
 * have noticed (--drain-delay): /health is 503, and everything is served as before. */
void http_stop_announce(struct http_server *server);
/* Begins with the grace time. Whoever connects meanwhile gets a 503, but on a socket of the service
 * manager's, where the next process answers: there each connection that is here already has one
 * more answer, so that a restart refuses nobody. */
void http_stop_begin(struct http_server *server, int64_t grace_ms);
/* Ends the grace time. */
void http_stop_hasten(struct http_server *server);
/* Returns whether a request is on its way here: on a connection from which none has come yet, which
 * is given a moment, or of which a part is here. */
bool http_stop_is_request_expected(const struct http_server *server);

/* What comes from now on is answered with 503. */
void http_stop_refuse_work(struct http_server *server);
/* Ends each request with FINISH_ABORT, which completes its answer, also while ranks restart. */
void http_stop_cancel(struct http_server *server);
/* The same, but ranks may restart later: the server goes on. */
void http_stop_cancel_calls(struct http_server *server);
/* Nobody connects any more; those who have are here. A socket of the service manager's is left to the
 * next process with all who wait on it. */
void http_stop_listening(struct http_server *server);
/* Gives all connections up. */
void http_stop_close(struct http_server *server);

#endif
