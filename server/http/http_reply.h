/* Responses. The http_reply functions that return MHD_Result queue the answer of an exchange, which
 * is then ANSWERED; MHD_NO: libmicrohttpd closes the connection. */
#ifndef QUIRE_SERVER_HTTP_HTTP_REPLY_H
#define QUIRE_SERVER_HTTP_HTTP_REPLY_H

#include "server/http/http_state.h"

#include <stdarg.h>

enum MHD_Result http_reply_error(struct connection *connection); /* exchange.error */
/* Sends exchange.out with status and fields; content_type NULL: the fields contain it. */
enum MHD_Result http_reply_body(struct connection *connection, const char *content_type);
enum MHD_Result http_reply_stream(struct connection *connection);
enum MHD_Result http_reply_options(struct connection *connection);
/* Sends exchange.error in the middle of a body, whose rest is not read. */
enum MHD_Result http_reply_refuse_body(struct connection *connection);

/* Logs what libmicrohttpd says, at level debug. */
void http_reply_log(void *context, const char *format, va_list args);
/* Makes the response to a request that libmicrohttpd refuses by itself. */
struct MHD_Response *http_reply_refused(void *context, struct MHD_Connection *mhd, unsigned status);
/* Makes the answer that is used when memory is too short to make one; NULL: too short for this
 * too. */
struct MHD_Response *http_reply_create_out_of_memory(void);

#endif
