/* What an administrator has the server do by requests on the port of its clients (--enable-admin),
 * in vLLM's words: /sleep, /wake_up, /is_sleeping, /reset_prefix_cache, /server_info. Who may is
 * http_admission's to say. /admin/ below is another way to the same actions. */
#ifndef QUIRE_SERVER_HTTP_HTTP_CONTROL_H
#define QUIRE_SERVER_HTTP_HTTP_CONTROL_H

#include "server/http/http_state.h"

/* Routes' answers (http_routes.h): 0, or -1 and exchange.error. A query that has other arguments,
 * or values, than are named here is a 400. */

/* ?reset_running_requests=false&reset_external=false */
int http_control_reset_cache(struct connection *connection);
/* ?level=1, 2: without weights&mode=wait, abort: cancels what is in flight. The exchange waits
 * until the engine sleeps. */
int http_control_sleep(struct connection *connection);
/* ?tags=weights&tags=kv_cache, none: all. The exchange waits until the engine is awake. Of tags
 * that are not all note is taken: what is named with the last one is woken together. */
int http_control_wake(struct connection *connection);
int http_control_is_sleeping(struct connection *connection);
int http_control_server_info(struct connection *connection);

/* Answers the exchanges that wait for what has come to pass. */
void http_control_update(struct http_server *server);

/* --- The actions, and a word for the state that they lead to --- */

void http_control_flush(struct http_server *server);
/* NULL while the engine is awake; else "asleep" and the like. */
const char *http_control_rest_name(enum engine_rest rest);

/* --- /admin/ --- */

/* The administration of a running server, on a UNIX socket of its own whose file mode says who may
 * use it: POST /admin/drain, /admin/resume, /admin/flush-cache, /admin/log-level, GET
 * /admin/status. Requests and answers are small and need no wait, so that the I/O loop serves them
 * itself, by a second daemon of libmicrohttpd. */

#define HTTP_ADMIN_CONNECTIONS 16
#define HTTP_ADMIN_HEADER_BYTES (8 * 1024)
#define HTTP_ADMIN_BYTES ((size_t)1 << 20) /* what its connections hold at most */

/* libmicrohttpd's callbacks: a request, and its end. context: the http_server. */
enum MHD_Result http_control_handle_admin(void *context, struct MHD_Connection *mhd,
                                          const char *url, const char *method, const char *version,
                                          const char *upload_data, size_t *upload_size,
                                          void **request_context);
void http_control_complete_admin(void *context, struct MHD_Connection *mhd, void **request_context,
                                 enum MHD_RequestTerminationCode code);

#endif
