/* libmicrohttpd's callbacks for what comes from clients: connections, and requests, which are
 * checked, their bodies collected and their answers started.
 *
 * Everything that can be refused is refused with the header, in this order: framing, number of
 * connections, name and origin, key, path, method, size, admission. A body's memory is taken as it
 * comes and an API call counts once its body is there, so a request that was only announced holds
 * nothing but its connection. The answer then goes out at once when framing is in doubt or the body
 * is large; a small body is read and dropped first, because closing a socket with unread bytes
 * resets it and the client may lose the answer. */
#ifndef QUIRE_SERVER_HTTP_HTTP_HANDLER_H
#define QUIRE_SERVER_HTTP_HTTP_HANDLER_H

#include "server/http/http_state.h"

/* A connection came, and may need others to give way, or went. context: the http_server. */
void http_handler_notify(void *context, struct MHD_Connection *mhd, void **socket_context,
                         enum MHD_ConnectionNotificationCode code);
/* context: the http_server; *request_context: the connection, from the exchange's first call on. */
enum MHD_Result http_handler_handle(void *context, struct MHD_Connection *mhd, const char *url,
                                    const char *method, const char *version,
                                    const char *upload_data, size_t *upload_size,
                                    void **request_context);

#endif
