/* How long an API call may take: the body's timeout_ms and the header X-Request-Timeout, in seconds,
 * both from the arrival of the request's header; the earlier deadline holds. And how long a request
 * may wait to run (--queue-timeout). I/O thread only. */
#ifndef QUIRE_SERVER_HTTP_HTTP_TIMEOUT_H
#define QUIRE_SERVER_HTTP_HTTP_TIMEOUT_H

#include "server/http/http_state.h"

/* Reads the header, a decimal number from 0.001 to 86400; NULL: 0, none. -1 and a 400 for anything
 * else. */
int http_timeout_read(const char *text, int64_t *out_ms, struct api_error *err);

/* Sets the deadlines of a request of the exchange's call. Its first one alone has a time to wait: a
 * call with many prompts that has begun to run goes on, however long the last of them wait. */
void http_timeout_prepare(const struct connection *connection, int index);

/* Returns -1 with exchange.error, a 503, when the exchange's call, whose requests are prepared, is
 * not expected to run before its deadline, or within half of --queue-timeout. */
int http_timeout_check(struct connection *connection);

#endif
