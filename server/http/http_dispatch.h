/* Exchanges that wait: gives their bodies to prep workers, hands what these made of them to the
 * engine, and collects the output. */
#ifndef QUIRE_SERVER_HTTP_HTTP_DISPATCH_H
#define QUIRE_SERVER_HTTP_HTTP_DISPATCH_H

#include "server/http/http_state.h"

/* Hands the exchange's body to a worker; the exchange is then WAITING. -1: no memory. */
int http_dispatch_start(struct connection *connection);
/* Takes a job back that a worker has finished. */
void http_dispatch_prepared(struct prep_job *job);
/* Destroys a job that never came back to its exchange; for prep_workers_destroy. */
void http_dispatch_drop(struct prep_job *job);

/* Reads the requests that have events; true: there are more than are read in one turn. */
bool http_dispatch_take_ready(struct http_server *server);
/* Counts the memory of the answer in exchange.out, as every answer that is whole must be: one
 * that a call or a transform has made, or a route by itself. -1 and exchange.error where there is
 * none for it, and nothing is held then. */
int http_dispatch_hold_answer(struct connection *connection);
/* Output was taken: continues to read a call whose output was full. */
void http_dispatch_output_drained(struct connection *connection);

#endif
