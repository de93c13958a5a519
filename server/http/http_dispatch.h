/* Exchanges that wait: passes their bodies to prep workers, submits the resulting requests to the
 * engine, and collects the output. */
#ifndef QUIRE_SERVER_HTTP_HTTP_DISPATCH_H
#define QUIRE_SERVER_HTTP_HTTP_DISPATCH_H

#include "server/http/http_state.h"

/* Passes the exchange's body to a worker; the exchange is then WAITING. Returns -1 when memory is
 * short. */
int http_dispatch_start(struct connection *connection);
/* Passes the body to a worker, which parses it for the exchange's model, which is awake. Returns -1
 * when memory is short. */
int http_dispatch_parse(struct http_task *task);
/* Answers a body that no worker has with the error, and destroys it. Its client may be gone. error:
 * may be the exchange's own; retry_ms: as in struct exchange. */
void http_dispatch_refuse(struct http_task *task, const struct api_error *error, int64_t retry_ms);
/* Takes a job back that a worker has finished. */
void http_dispatch_prepared(struct prep_job *job);
/* Destroys a job that never came back to its exchange; for prep_workers_destroy. */
void http_dispatch_drop(struct prep_job *job);

/* Reads the engine's requests that have events; returns true if there are more than are read in one
 * turn. */
bool http_dispatch_take_ready(struct engine *engine);
/* Counts the memory of the answer in exchange.out. Every complete answer must be counted, whether
 * made by a call, a transform or a route. Returns -1 with exchange.error if the budget has no room
 * for it; then nothing is held. */
int http_dispatch_hold_answer(struct connection *connection);
/* Output was taken: continues to read a call whose output was full. */
void http_dispatch_output_drained(struct connection *connection);

#endif
