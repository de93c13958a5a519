/* libmicrohttpd's access handler: checks a request, collects its body and starts its answer. */
#ifndef QUIRE_SERVER_HTTP_HTTP_HANDLER_H
#define QUIRE_SERVER_HTTP_HTTP_HANDLER_H

#include "server/http/http_state.h"

/* context: the http_server; *request_context: the connection, from the exchange's first call on. */
enum MHD_Result http_handler_handle(void *context, struct MHD_Connection *mhd, const char *url,
                                    const char *method, const char *version,
                                    const char *upload_data, size_t *upload_size,
                                    void **request_context);

#endif
