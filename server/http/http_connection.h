/* The life of a connection and of its exchanges: from libmicrohttpd's notifications to the memory
 * that they held, and what the access log and the collector of traces are told. Frees connections
 * inside MHD_run only. */
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
/* Ends each request of the server's calls with FINISH_ABORT, which completes its answer. */
void http_connection_cancel_all(struct http_server *server);
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
/* Frees a connection without a client, whose call has ended and was taken off, once nobody follows
 * it. */
void http_connection_free_background(struct connection *background);

/* --- Access log and traces --- */

/* Nothing else is written down of a request: not its text unless --log-prompts says so, and then
 * only so much of the body. */
#define HTTP_LOG_BODY_BYTES 2048

/* Copies the body's beginning for the log, if that is wanted, before a worker gets it. */
void http_connection_keep_body(struct connection *connection);
/* Logs and traces the exchange, once; nothing between exchanges. While its API call is still
 * there. */
void http_connection_log(struct connection *connection);
/* Logs a request that was refused before it became an exchange. connection may be NULL. */
void http_connection_log_refused(struct http_server *server, const struct connection *connection,
                                 const char *request_id, const struct api_error *error);

#endif
