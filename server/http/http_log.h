/* Tells the access log of exchanges that have ended, and the collector of traces of API calls.
 * Nothing else is written down of a request: not its text unless --log-prompts says so, and then
 * only so much of the body. */
#ifndef QUIRE_SERVER_HTTP_HTTP_LOG_H
#define QUIRE_SERVER_HTTP_HTTP_LOG_H

#include "server/http/http_state.h"

#define HTTP_LOG_BODY_BYTES 2048

/* Copies the body's beginning for the log, if that is wanted, before a worker gets it. */
void http_log_keep_body(struct connection *connection);
/* Logs and traces the exchange, once; nothing between exchanges. While its API call is still
 * there. */
void http_log_exchange(struct connection *connection);
/* Logs a request that was refused before it became an exchange. connection may be NULL. */
void http_log_refused(struct http_server *server, const struct connection *connection,
                      const char *request_id, const struct api_error *error);

#endif
