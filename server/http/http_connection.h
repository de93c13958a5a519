/* The life of a connection and of its exchanges: from libmicrohttpd's notifications to the memory
 * that they held. Frees connections inside MHD_run only. */
#ifndef QUIRE_SERVER_HTTP_HTTP_CONNECTION_H
#define QUIRE_SERVER_HTTP_HTTP_CONNECTION_H

#include "server/http/http_state.h"

/* Returns a connection that is watched for hang-ups and listed by the server; NULL: no memory. */
struct connection *http_connection_open(struct http_server *server, struct MHD_Connection *mhd);
void http_connection_close(struct connection *connection);

/* libmicrohttpd's callback: an exchange is over. Cancels what of it is unfinished. */
void http_connection_completed(void *context, struct MHD_Connection *mhd, void **request_context,
                               enum MHD_RequestTerminationCode code);

/* Suspends it; from a handler or content reader only. */
void http_connection_suspend(struct connection *connection);
/* Lets a suspended connection continue with the next MHD_run. */
void http_connection_wake(struct connection *connection);
/* Begins a turn of the loop: wakes those whose answers were left for it. */
void http_connection_resume_deferred(struct http_server *server);

/* Cancels the requests of the exchange's call that have not finished. */
void http_connection_cancel(struct connection *connection);
/* The client has closed its sending half, or (is_gone) all of it. Cancels its requests at once
 * and closes the socket, unless it may still read the answer to a request that is whole. */
void http_connection_hang_up(struct connection *connection, bool is_gone);
/* Returns whether the kernel has bytes of the client's that libmicrohttpd has not read. */
bool http_connection_has_unread(const struct connection *connection);
/* Counts a connection again on which nothing was expected any more: a whole request is here. */
void http_connection_reopen(struct connection *connection);
/* Asks a client that has closed its sending half and waits for an answer whether it is there. True:
 * something in its stream is to ask it. */
bool http_connection_probe(struct connection *connection, int64_t now_ms);
/* Cancels its requests and closes the socket, whatever the client does. libmicrohttpd finds the
 * socket shut down with its next run. */
void http_connection_give_up(struct connection *connection);

/* Frees the body and the output, and gives their memory back. */
void http_connection_release_memory(struct connection *connection);

#endif
