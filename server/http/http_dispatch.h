/* Exchanges that wait: hands their bodies to prep workers and their requests to the engine, and
 * collects the output. */
#ifndef QUIRE_SERVER_HTTP_HTTP_DISPATCH_H
#define QUIRE_SERVER_HTTP_HTTP_DISPATCH_H

#include "server/http/http_state.h"

/* Hands the body to a worker; the exchange is then WAITING. -1: no memory. */
int http_dispatch_start(struct connection *connection);
/* Takes a job back that a worker has finished. */
void http_dispatch_prepared(struct prep_job *job);
/* Frees a worker's job that never came back to its exchange. */
void http_dispatch_drop_job(struct prep_job *job);

/* Reads the requests that have events; true: there are more than are read in one turn. */
bool http_dispatch_take_ready(struct http_server *server);
/* Output was taken: continues to read a call whose output was full. */
void http_dispatch_output_drained(struct connection *connection);
/* Cancels what is unfinished and forgets the call. */
void http_dispatch_abandon(struct connection *connection);

#endif
