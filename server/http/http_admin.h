/* The administration of a running server, on a UNIX socket of its own whose file mode says who may
 * use it: POST /admin/drain, /admin/resume, /admin/flush-cache, /admin/log-level, GET /admin/status.
 * Requests and answers are small and need no wait, so that the I/O loop serves them itself, by a
 * second daemon of libmicrohttpd. */
#ifndef QUIRE_SERVER_HTTP_HTTP_ADMIN_H
#define QUIRE_SERVER_HTTP_HTTP_ADMIN_H

#include "server/http/http_state.h"

#define HTTP_ADMIN_BYTES ((size_t)1 << 20) /* what its connections hold at most */

/* Returns a daemon that runs by MHD_run, on a listening socket that stays the caller's; NULL: the
 * system refused. */
struct MHD_Daemon *http_admin_start(struct http_server *server, int listen_fd);

#endif
