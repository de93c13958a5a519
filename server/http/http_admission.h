/* Who may have what of the server: its key, its connections, its API calls in flight, and what its
 * limits leave. Nobody may hold more connections or calls than are left for everybody else
 * (http_memory.h has the rule), but for a key that is the only one and for clients on this
 * machine. */
#ifndef QUIRE_SERVER_HTTP_HTTP_ADMISSION_H
#define QUIRE_SERVER_HTTP_HTTP_ADMISSION_H

#include "server/http/http_state.h"

/* Returns whether the connection's address has more than it may. */
bool http_admission_has_too_many_connections(const struct connection *connection);

/* Those that return int: 0, or -1 with exchange.error and, for a limit of the key, retry_ms. */

/* Refuses requests on connections beyond the limits, but for those that are answered at once: the
 * server's health is one of them. */
int http_admission_check_connections(struct connection *connection);
/* Finds the exchange's key; a 401 where one is needed and this one is wrong or has expired.
 * The values of the two fields, or NULL. */
int http_admission_find_key(struct connection *connection, const char *authorization,
                            const char *x_api_key);
/* Refuses whoever is no administrator: who came without the right of one (api_keys_is_admin), and
 * where no key is needed whoever is not on this machine. */
int http_admission_check_admin(struct connection *connection);
/* Refuses what could not begin now. */
int http_admission_check(struct connection *connection);

int http_admission_refuse_asleep(struct api_error *err);

/* Returns the number, below AUTH_MAX_TENANTS, of the key or address that the exchange is of. */
int32_t http_admission_owner(const struct connection *connection);

/* Counts a request that a worker has, until http_admission_end: the exchange is then pending. */
void http_admission_begin(struct connection *connection);
void http_admission_end(struct connection *connection);

/* Refuses prompts of the exchange's call that its key may not send now. */
int http_admission_check_prompts(struct connection *connection);
/* Counts them, once they are submitted, and their requests. */
void http_admission_take_prompts(struct connection *connection);
/* Counts what has been generated since the last time. */
void http_admission_take_output(struct connection *connection);
/* Returns how many requests of the exchange's share wait for one that runs to end: those that were
 * only just submitted, and for which there is room, do not. */
int64_t http_admission_num_waiting(const struct connection *connection);
/* Returns how long a request that finds the queue full would have waited in it, in ms: 1,000 to
 * 120,000. */
int64_t http_admission_wait_ms(const struct connection *connection);
/* Sets whose request it is, and its place among those of others. */
void http_admission_prepare(const struct connection *connection, struct request *request);

/* --- Deadlines --- */

/* How long an API call may take: the body's timeout_ms and the header X-Request-Timeout, in
 * seconds, both from the arrival of the request's header; the earlier deadline holds. And how long
 * a request may wait to run (--queue-timeout). I/O thread only. */

/* Reads the header, a decimal number from 0.001 to 86400; NULL: 0, none. -1 and a 400 for anything
 * else. */
int http_admission_read_timeout(const char *text, int64_t *out_ms, struct api_error *err);

/* Sets the deadlines of a request of the exchange's call. Its first one alone has a time to wait: a
 * call with many prompts that has begun to run goes on, however long the last of them wait. */
void http_admission_set_deadlines(const struct connection *connection, int index);

/* Returns -1 with exchange.error, a 503, when the exchange's call, whose requests are prepared, is
 * not expected to run before its deadline, or within half of --queue-timeout. */
int http_admission_check_wait(struct connection *connection);

#endif
