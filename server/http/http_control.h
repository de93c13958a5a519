/* What an administrator has the server do by requests on the port of its clients (--enable-admin), in
 * vLLM's words: /sleep, /wake_up, /is_sleeping, /reset_prefix_cache, /server_info. Who may is
 * http_admission's to say. /admin/ (http_admin.h) is another way to the same actions. */
#ifndef QUIRE_SERVER_HTTP_HTTP_CONTROL_H
#define QUIRE_SERVER_HTTP_HTTP_CONTROL_H

#include "server/http/http_state.h"

/* Routes' answers (http_routes.h): 0, or -1 and exchange.error. A query that has other arguments, or
 * values, than are named here is a 400. */

/* ?reset_running_requests=false&reset_external=false */
int http_control_reset_cache(struct connection *connection);
/* ?level=1, 2: without weights&mode=wait, abort: cancels what is in flight. The exchange waits until
 * the engine sleeps. */
int http_control_sleep(struct connection *connection);
/* ?tags=weights&tags=kv_cache, none: all. The exchange waits until the engine is awake. Of tags that
 * are not all note is taken: what is named with the last one is woken together. */
int http_control_wake(struct connection *connection);
int http_control_is_sleeping(struct connection *connection);
int http_control_server_info(struct connection *connection);

/* Answers the exchanges that wait for what has come to pass. */
void http_control_update(struct http_server *server);

/* --- The actions, and a word for the state that they lead to --- */

void http_control_flush(struct http_server *server);
/* NULL while the engine is awake; else "asleep" and the like. */
const char *http_control_rest_name(enum engine_rest rest);

#endif
