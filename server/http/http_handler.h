/* libmicrohttpd's callbacks for what comes from clients: connections, and requests, which are
 * checked, their bodies collected and their answers started.
 *
 * Everything that can be refused is refused with the header, in this order: framing, number of
 * connections, name and origin, key, path, method, size, admission. A body's memory is counted as
 * it arrives, and an API call counts once its body is complete, so a request that was only
 * announced holds nothing except its connection. A refusal is sent at once when framing is
 * ambiguous or the body is large. A small body is read and dropped first, because closing a socket
 * with unread bytes resets it and the client may lose the answer. */
#ifndef QUIRE_SERVER_HTTP_HTTP_HANDLER_H
#define QUIRE_SERVER_HTTP_HTTP_HANDLER_H

#include "server/http/http_state.h"

/* A connection was opened, for which others may have to be closed, or was closed. context: the
 * http_server. */
void http_handler_notify(void *context, struct MHD_Connection *mhd, void **socket_context,
                         enum MHD_ConnectionNotificationCode code);
/* context: the http_server; *request_context: the connection, from the exchange's first call on. */
enum MHD_Result http_handler_handle(void *context, struct MHD_Connection *mhd, const char *url,
                                    const char *method, const char *version,
                                    const char *upload_data, size_t *upload_size,
                                    void **request_context);

#endif
