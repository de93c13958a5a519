/* Administration by requests on the clients' port (--enable-admin), with vLLM's names: /sleep,
 * /wake_up, /is_sleeping, /reset_prefix_cache, /server_info. http_admission decides who may use it.
 * /admin/ below is another way to the same actions. */
#ifndef QUIRE_SERVER_HTTP_HTTP_CONTROL_H
#define QUIRE_SERVER_HTTP_HTTP_CONTROL_H

#include "server/http/http_state.h"

/* Answers of routes (http_routes.h): 0, or -1 with exchange.error. A query with arguments or values
 * other than those named here is a 400. */

/* ?reset_running_requests=false&reset_external=false */
int http_control_reset_cache(struct connection *connection);
/* ?level=1, 2: without weights&mode=wait, abort: cancels what is in flight. The exchange waits
 * until the engine sleeps. */
int http_control_sleep(struct connection *connection);
/* ?tags=weights&tags=kv_cache, none: all. The exchange waits until the engine is awake. A subset of
 * the tags is only noted; once all tags have been named, everything is woken together. */
int http_control_wake(struct connection *connection);
int http_control_is_sleeping(struct connection *connection);
int http_control_server_info(struct connection *connection);

/* Answers the exchanges whose awaited state was reached. */
void http_control_update(struct http_server *server);

/* --- The actions, and the name of the resulting state --- */

/* Returns NULL while the engine is awake, otherwise "asleep" and the like. */
const char *http_control_rest_name(enum engine_rest rest);

/* --- /admin/ --- */

/* The administration of a running server, on a separate UNIX socket whose file mode decides who may
 * use it: POST /admin/drain, /admin/resume, /admin/flush-cache, /admin/log-level, GET
 * /admin/status. Requests and answers are small and never wait, so the I/O loop serves them itself,
 * with a second daemon of libmicrohttpd. */

#define HTTP_ADMIN_CONNECTIONS 16
#define HTTP_ADMIN_HEADER_BYTES (8 * 1024)
#define HTTP_ADMIN_BYTES ((size_t)1 << 20) /* maximum memory of its connections */

/* libmicrohttpd's callbacks: a request, and its end. context: the http_server. */
enum MHD_Result http_control_handle_admin(void *context, struct MHD_Connection *mhd,
                                          const char *url, const char *method, const char *version,
                                          const char *upload_data, size_t *upload_size,
                                          void **request_context);
void http_control_complete_admin(void *context, struct MHD_Connection *mhd, void **request_context,
                                 enum MHD_RequestTerminationCode code);

#endif
