/* What a client may use of the server: by its key, its connections, its API calls in flight, and
 * what its limits leave. No client may hold more connections or calls than are left for all others
 * (http_memory.h has the rule), except for a key that is the only one and for clients on this
 * machine. */
#ifndef QUIRE_SERVER_HTTP_HTTP_ADMISSION_H
#define QUIRE_SERVER_HTTP_HTTP_ADMISSION_H

#include "server/http/http_state.h"

/* Returns whether the connection's address has more connections than allowed. */
bool http_admission_has_too_many_connections(const struct connection *connection);

/* Functions that return int return 0, or -1 with exchange.error and, for a limit of the key,
 * retry_ms. */

/* Refuses requests on connections beyond the limits, except for those that are answered at once,
 * such as the server's health. */
int http_admission_check_connections(struct connection *connection);
/* Finds the exchange's key; fails with 401 if one is needed and this one is wrong or has expired.
 * The arguments are the values of the two header fields, or NULL. */
int http_admission_find_key(struct connection *connection, const char *authorization,
                            const char *x_api_key);
/* Refuses clients that are not administrators: those without admin rights (api_keys_is_admin) and,
 * if no key is needed, those not on this machine. */
int http_admission_check_admin(struct connection *connection);
/* Refuses requests that could not begin now. */
int http_admission_check(struct connection *connection);

int http_admission_refuse_asleep(struct api_error *err);

/* Returns the number, below AUTH_MAX_TENANTS, of the exchange's key or address. */
int32_t http_admission_owner(const struct connection *connection);

/* Counts a request that a worker has, until http_admission_end: the exchange is then pending. */
void http_admission_begin(struct connection *connection);
void http_admission_end(struct connection *connection);

/* Refuses the prompts of the exchange's call if its key may not send them now. */
int http_admission_check_prompts(struct connection *connection);
/* Counts the prompts and their requests, once they are submitted. */
void http_admission_take_prompts(struct connection *connection);
/* Counts the tokens generated since the last call. */
void http_admission_take_output(struct connection *connection);
/* Returns how many requests of the exchange's share wait for a running one to end. Requests that
 * were just submitted, and for which there is room, do not count. */
int64_t http_admission_num_waiting(const struct connection *connection);
/* Returns how long a request that finds the queue full would have waited in it, in ms: 1,000 to
 * 120,000. */
int64_t http_admission_wait_ms(const struct connection *connection);
/* Sets the owner of the request, and its priority relative to others. */
void http_admission_prepare(const struct connection *connection, struct request *request);

/* --- Deadlines --- */

/* How long an API call may take: the body's timeout_ms and the header X-Request-Timeout, in
 * seconds, both from the arrival of the request's header; the earlier deadline holds. And how long
 * a request may wait to run (--queue-timeout). I/O thread only. */

/* Reads the header, a decimal number from 0.001 to 86400; NULL gives 0, no timeout. Returns -1 and
 * a 400 for anything else. */
int http_admission_read_timeout(const char *text, int64_t *out_ms, struct api_error *err);

/* Sets the deadlines of a request of the exchange's call. Only its first request has a queue
 * timeout: a call with many prompts that has begun to run continues, however long the last of them
 * wait. */
void http_admission_set_deadlines(const struct connection *connection, int index);

/* Returns -1 with exchange.error, a 503, when the exchange's call, whose requests are prepared, is
 * not expected to run before its deadline, or within half of --queue-timeout. */
int http_admission_check_wait(struct connection *connection);

#endif
