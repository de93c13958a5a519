/* The life of a connection and of its exchanges: from libmicrohttpd's notifications to freeing
 * their memory, and their records for the access log and the trace collector. Frees connections
 * only inside MHD_run. */
#ifndef QUIRE_SERVER_HTTP_HTTP_CONNECTION_H
#define QUIRE_SERVER_HTTP_HTTP_CONNECTION_H

#include "server/http/http_state.h"

/* Returns a connection that is watched for hang-ups and listed by the server; NULL: no memory. */
struct connection *http_connection_open(struct http_server *server, struct MHD_Connection *mhd);
void http_connection_close(struct connection *connection);

/* libmicrohttpd's callback: an exchange is over. Cancels its unfinished requests. */
void http_connection_completed(void *context, struct MHD_Connection *mhd, void **request_context,
                               enum MHD_RequestTerminationCode code);

/* Suspends it; only from a handler or content reader. */
void http_connection_suspend(struct connection *connection);
/* Lets a suspended connection continue with the next MHD_run. */
void http_connection_wake(struct connection *connection);
/* Begins a turn of the loop: wakes the connections whose answers were deferred to it. */
void http_connection_resume_deferred(struct http_server *server);

/* Cancels the requests of the exchange's call that have not finished. */
void http_connection_cancel(struct connection *connection);
/* Ends each request of the server's calls with FINISH_ABORT, which completes its answer. */
void http_connection_cancel_all(struct http_server *server);
/* The client has closed its sending half, or (is_gone) the connection. Cancels its requests at once
 * and closes the socket, unless it may still read the answer to a complete request. */
void http_connection_hang_up(struct connection *connection, bool is_gone);
/* Returns whether the kernel has bytes from the client that libmicrohttpd has not read. */
bool http_connection_has_unread(const struct connection *connection);
/* Counts a connection again from which nothing was expected any more: a complete request has
 * arrived. */
void http_connection_reopen(struct connection *connection);
/* Finds out whether a client that has closed its sending half and waits for an answer still exists.
 * True: something must be sent in its stream to find out. */
bool http_connection_probe(struct connection *connection, int64_t now_ms);
/* Cancels its requests and closes the socket unconditionally. libmicrohttpd finds the socket shut
 * down in its next run. */
void http_connection_give_up(struct connection *connection);

/* Frees the body and the output, and returns their memory to the budget. */
void http_connection_release_memory(struct connection *connection);
/* Frees a connection without a client, once its call has ended and was removed, and nobody follows
 * it. */
void http_connection_free_background(struct connection *background);

/* --- Access log and traces --- */

/* Nothing else of a request is logged: its text only with --log-prompts, and then only this much of
 * the body. */
#define HTTP_LOG_BODY_BYTES 2048

/* Copies the body's beginning for the log, if requested, before a worker gets it. */
void http_connection_keep_body(struct connection *connection);
/* Logs and traces the exchange, once; does nothing between exchanges. Called while its API call
 * still exists. */
void http_connection_log(struct connection *connection);
/* Writes a refused request to the server's log, with its cause, unless there are too many
 * (traffic_log.h). */
void http_connection_log_error(struct connection *connection);
/* Logs a request that was refused before it became an exchange. connection may be NULL. */
void http_connection_log_refused(struct http_server *server, const struct connection *connection,
                                 const char *request_id, const struct api_error *error);

#endif
